"""The state and progress of a run."""

from __future__ import annotations

import re
import signal
import time
from contextlib import suppress
from dataclasses import dataclass, replace
from enum import StrEnum
from pathlib import Path

from transformer.config import from_dict, to_dict
from transformer.errors import InputError
from transformer.files import read_json, write_json

PROGRESS_FILE = "progress.json"
# A run's process exits with this after a signal and a checkpoint (EX_TEMPFAIL of sysexits.h).
STOPPED_EXIT_CODE = 75
BLOCKED_EXIT_CODE = 74  # EX_IOERR
# Ctrl-C, SIGTERM, a closed terminal, and what SLURM can send before it takes a machine away: the
# first one ends a run after a checkpoint.
STOP_SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGUSR1)
# The beginning of the message of a run whose gradient is not finite.
DIVERGED_MESSAGE = "training diverged"
# A checkpoint waits for a validation, which may take half a minute. A run that has not written its
# checkpoint by then resumes from the one before.
GRACE_SECONDS = 60.0
# Colours, cursor movements, and window titles.
_ESCAPES = re.compile(r"\x1b(\[[0-?]*[ -/]*[@-~]|\][^\x07\x1b]*(\x07|\x1b\\))")


class RunState(StrEnum):
    """The state of a run, as ``progress.json`` and ``status --json`` spell it.

    A running process writes ``PREPARE`` to ``DONE``. ``STOPPED`` to ``FAILED`` record how runs of a
    table or a search ended otherwise; the rest exist only in ``status``.
    """

    WAITING = "waiting"
    RUNNING = "running"
    PREPARE = "prepare"
    TRAIN = "train"
    EVALUATE = "evaluate"
    DONE = "done"
    STOPPED = "stopped"  # by a signal, after a checkpoint
    REFUSED = "refused"  # bad input
    BLOCKED = "blocked"  # by a full disk, missing or changed text: the same command continues
    DIVERGED = "diverged"
    FAILED = "failed"
    GIVEN_UP = "given up"  # after too many failures
    PRUNED = "pruned"  # by a search, before its last step
    STALE = "stale"  # of a row whose settings, or whose class, changed since the run ended


FINAL = (
    RunState.DONE,
    RunState.STOPPED,
    RunState.REFUSED,
    RunState.BLOCKED,
    RunState.DIVERGED,
    RunState.FAILED,
)
SILENT_SECONDS = 60.0  # a run in progress reports every second; longer silence is named
_EXIT_STATES = {
    0: RunState.DONE,
    2: RunState.REFUSED,
    BLOCKED_EXIT_CODE: RunState.BLOCKED,
    STOPPED_EXIT_CODE: RunState.STOPPED,
}


@dataclass(frozen=True, kw_only=True, slots=True)
class Progress:
    """How far a run is: ``step`` of ``max_steps``.

    ``tokens_per_second`` counts target tokens without padding; ``seconds_left`` is for the current
    stage; ``updated_at`` is in seconds since the epoch; ``message`` says why a process ended early:
    a signal, bad input or a failure.
    """

    stage: RunState
    step: int = 0
    max_steps: int = 0
    loss: float | None = None
    tokens_per_second: float | None = None
    seconds_left: float | None = None
    updated_at: float = 0.0
    message: str = ""

    def __post_init__(self) -> None:
        object.__setattr__(self, "message", printable(self.message))


def printable(text: str) -> str:
    """Strip control characters, which could write anything to a terminal; white space is kept as
    spaces.
    """
    return "".join(
        x if x.isprintable() else " " if x.isspace() else "" for x in _ESCAPES.sub("", text)
    )


def write_progress(directory: Path, progress: Progress) -> None:
    """Write the progress file, in place of the one before."""
    write_json(directory / PROGRESS_FILE, to_dict(progress) | {"updated_at": time.time()})


def read_progress(directory: Path) -> Progress | None:
    """The latest progress of the run in ``directory``; None if there is none that can be read."""
    try:
        values = read_json(directory / PROGRESS_FILE)
        return from_dict(Progress, values | {"stage": RunState(values["stage"])})
    except (InputError, KeyError, ValueError):
        return None


def record_end(
    directory: Path, state: RunState, message: str, *, step: int | None = None, started_at: float
) -> None:
    """Record how the run ended, and at which ``step`` (None: the last one that was reported).

    The first record since ``started_at`` (seconds since the epoch) stands: when one rank fails,
    the errors of the others are its consequences.
    """
    last = read_progress(directory) or Progress(stage=state)
    if last.stage in FINAL and last.updated_at >= started_at:
        return
    step = last.step if step is None else step
    end = replace(last, stage=state, message=message, step=step, seconds_left=None)
    with suppress(OSError):  # the disk may be full, which may be the message, or the directory gone
        write_progress(directory, end)


def final_state(directory: Path, exit_code: int, started_at: float) -> RunState:
    """How the process ended that was started in ``directory`` at ``started_at``.

    Its own record takes precedence: the exit codes of ranks are lost, and a process that is killed
    right after it finished has finished. A process that was killed earlier leaves no record.

    Args:
        exit_code: of the process; negative for a signal
        started_at: seconds since the epoch
    """
    progress = read_progress(directory)
    if progress is not None and progress.updated_at >= started_at and progress.stage in FINAL:
        return progress.stage
    return _EXIT_STATES.get(exit_code, RunState.FAILED)


def stop_signals() -> list[signal.Signals]:
    """``STOP_SIGNALS``, without SIGHUP where ``nohup`` lets this process outlive its terminal."""
    return [x for x in STOP_SIGNALS if x != signal.SIGHUP or signal.getsignal(x) != signal.SIG_IGN]


def stop_codes() -> list[int]:
    """The exit codes of a process that a signal stopped."""
    return [STOPPED_EXIT_CODE, *(128 + number for number in stop_signals())]
