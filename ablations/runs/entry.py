"""Inside a run's process: obey signals, watch the parent, record the end.

``python -m ablations.runs.entry DIRECTORY [ACCUMULATE LOG]`` carries out the run that
``config.json`` describes.
"""

from __future__ import annotations

import multiprocessing
import os
import signal
import sys
import threading
import time
import traceback
from multiprocessing.connection import wait
from pathlib import Path
from types import FrameType
from typing import cast

from lightning.fabric.utilities.rank_zero import rank_zero_only

from ablations.runs.forkserver import unblock_signals
from ablations.runs.process import LOG_FILE
from experiments.command_line import (
    BAD_INPUT,
    is_bad_input,
    prepare_streams,
)
from experiments.devices import launched_world
from experiments.records.experiment import Log, load_experiment
from experiments.records.ownership import is_first_rank
from experiments.records.progress import STOPPED_EXIT_CODE, RunState, record_end, stop_signals
from experiments.run import Outcome, execute

_TAKEN_OVER = "another attempt has taken this run over"
_POLL_SECONDS = 1.0
# A rank whose peers are gone may hang in a call that no signal interrupts.
_GRACE_SECONDS = 60.0


def run_forked(
    directory: str, folder: str, environment: dict[str, str], accumulate: int, log: Log
) -> None:
    """Carry out a run in a process that was forked for it, and exit.

    Args:
        directory: of the run
        folder: the working directory
        environment: replaces that of the fork server
        accumulate: as for :func:`experiments.run.run`
        log: likewise
    """
    try:
        output = os.open(Path(directory) / LOG_FILE, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o666)
    except FileNotFoundError:
        sys.exit(STOPPED_EXIT_CODE)  # another attempt has taken the directory over
    for stream in (1, 2):
        os.dup2(output, stream)
    os.close(output)
    os.chdir(folder)
    os.environ.clear()
    os.environ.update(environment)
    rank_zero_only.rank = 0  # pyright: ignore[reportFunctionMemberAccess]  # it was read at import
    multiprocessing.current_process().daemon = False  # it may start processes
    parent = multiprocessing.parent_process()
    assert parent is not None
    _handle_signals()
    unblock_signals()
    _stop_when_closed(parent.sentinel)
    sys.exit(_run(Path(directory), accumulate, log))


def run_as_rank(directory: Path, accumulate: int, log: Log) -> int:
    """Carry out a run or one rank of it, until standard input closes; the exit code."""
    _handle_signals()
    _stop_when_closed(sys.stdin.fileno())
    return _run(directory, accumulate, log)


def _run(directory: Path, accumulate: int, log: Log) -> int:
    """Exit codes: 0 done, 2 bad input, 75 stopped after a checkpoint, 1 failed or diverged."""
    prepare_streams()
    started_at = time.time()
    try:
        experiment = load_experiment(directory)
        outcome = execute(
            experiment,
            directory,
            accumulate=accumulate,
            fenced=True,
            log=log,
        )
    except SystemExit:
        message = "stopped outside of training; the same command continues"
        outcome = Outcome(RunState.STOPPED, message)
    except Exception as error:
        outcome = _failure(error, directory)
    if not directory.is_dir():
        print(_TAKEN_OVER, file=sys.stderr, flush=True)
        # Nothing may be written any more; W&B's exit handlers would create the directory again.
        os._exit(STOPPED_EXIT_CODE)
    state = outcome.state
    if state != RunState.DONE:
        if state != RunState.STOPPED or is_first_rank():
            print(outcome.message, file=sys.stderr)
        record_end(directory, state, outcome.message, step=outcome.step, started_at=started_at)
    if state == RunState.STOPPED:
        # With another code the launcher would kill the other ranks before they are finished.
        return STOPPED_EXIT_CODE if launched_world() is None else 0
    return {RunState.DONE: 0, RunState.REFUSED: BAD_INPUT}.get(state, 1)


def _failure(error: Exception, directory: Path) -> Outcome:
    if is_bad_input(error):
        return Outcome(RunState.REFUSED, str(error))
    if directory.is_dir():
        traceback.print_exc()
    first = next(iter(str(error).splitlines()), "")
    return Outcome(RunState.FAILED, f"{type(error).__name__}: {first}")


def _handle_signals() -> None:
    """Exit on a signal outside of training, where there is nothing to save."""

    def stop(number: int, frame: FrameType | None) -> None:
        del number, frame
        sys.exit(STOPPED_EXIT_CODE)

    for number in stop_signals():
        signal.signal(number, stop)


def _stop_when_closed(sentinel: int) -> None:
    """Act as on SIGTERM when the parent, which holds the other end of ``sentinel``, or the
    launcher of the ranks disappears.
    """
    launcher = os.getppid()

    def watch() -> None:
        while os.getppid() == launcher and not wait([sentinel], _POLL_SECONDS):
            pass
        os.kill(os.getpid(), signal.SIGTERM)
        time.sleep(_GRACE_SECONDS)
        os._exit(STOPPED_EXIT_CODE)

    threading.Thread(target=watch, daemon=True).start()


if __name__ == "__main__":
    folder, *given = sys.argv[1:]
    parts, chosen = given or ("1", "wandb")
    sys.exit(run_as_rank(Path(folder), int(parts), cast(Log, chosen)))
