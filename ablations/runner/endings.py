"""How a run's process ended, as it says itself in ``progress.json``, or by its exit code."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Literal

from ablations.runner.process import STOPPED
from experiments.command_line import BAD_INPUT
from experiments.run.progress import Progress, Stage, read_progress, write_progress

Ending = Literal["finished", "refused", "stopped", "diverged", "crashed"]

_BY_STAGE: dict[Stage, Ending] = {
    "done": "finished",
    "refused": "refused",
    "stopped": "stopped",
    "diverged": "diverged",
    "failed": "crashed",
}
_BY_CODE: dict[int, Ending] = {0: "finished", BAD_INPUT: "refused", STOPPED: "stopped"}


def conclude(
    directory: Path, stage: Stage, message: str, *, step: int | None = None, started_at: float
) -> None:
    """Note how the run ended, and at which ``step``; None for the last that was shown.

    What another rank, or this one, has noted since ``started_at`` (seconds since the epoch)
    stands: what comes second is what the first brought about.
    """
    last = read_progress(directory) or Progress(stage=stage)
    if last.stage in _BY_STAGE and last.updated_at >= started_at:
        return
    step = last.step if step is None else step
    end = replace(last, stage=stage, message=message, step=step, seconds_left=None)
    with suppress(OSError):  # a full disk, which may be what there is to tell, or no directory
        write_progress(directory, end)


def ending(directory: Path, returncode: int, started_at: float) -> Ending:
    """How the process of ``directory`` ended that was started at ``started_at``.

    Its own word comes first: the exit codes of ranks are lost, and one that is killed right after
    its end is still at its end. One that was killed before has left no word.

    Args:
        returncode: of the process
        started_at: seconds since the epoch
    """
    progress = read_progress(directory)
    if progress is not None and progress.updated_at >= started_at and progress.stage in _BY_STAGE:
        return _BY_STAGE[progress.stage]
    return _BY_CODE.get(returncode, "crashed")
