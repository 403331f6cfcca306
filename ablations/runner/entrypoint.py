"""What a run's own process does besides the run: it heeds signals, watches its parent, and
leaves a word of how it ended.
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

from lightning.fabric.utilities.rank_zero import rank_zero_only

from ablations.runner.endings import conclude
from ablations.runner.process import LOG_FILE, STOPPED
from ablations.runner.warm import unblock_signals
from experiments.command_line import BAD_INPUT, is_bad_input, show_warnings_in_one_line
from experiments.run.carry_out import Outcome, carry_out
from experiments.run.devices import is_first_rank, launched_world
from experiments.run.experiment import load_experiment

_TAKEN_OVER = "another attempt has taken this run over"
_POLL_SECONDS = 1.0
# A rank whose peers are gone may hang in a call that no signal reaches.
_GRACE_SECONDS = 60.0


def run_forked(directory: str, folder: str, environment: dict[str, str], accumulate: int) -> None:
    """Carry out a run in a process that was forked for it, and exit.

    Args:
        directory: of the run
        folder: the working directory
        environment: in place of the one that the fork server was started with
        accumulate: as :func:`ablations.runner.process.start` takes it
    """
    try:
        log = os.open(Path(directory) / LOG_FILE, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o666)
    except FileNotFoundError:
        sys.exit(STOPPED)  # another attempt has taken the directory over
    for stream in (1, 2):
        os.dup2(log, stream)
    os.close(log)
    os.chdir(folder)
    os.environ.clear()
    os.environ.update(environment)
    rank_zero_only.rank = 0  # pyright: ignore[reportFunctionMemberAccess]  # it was read at import
    multiprocessing.current_process().daemon = False  # it may have children
    parent = multiprocessing.parent_process()
    assert parent is not None
    _take_signals()
    unblock_signals()
    _stop_with(parent.sentinel)
    sys.exit(_carry_out(Path(directory), accumulate))


def run_as_rank(directory: Path, accumulate: int = 1) -> int:
    """Carry out a run, or this process's part of it, until standard input closes; exit code."""
    _take_signals()
    _stop_with(sys.stdin.fileno())
    return _carry_out(directory, accumulate)


def _carry_out(directory: Path, accumulate: int) -> int:
    """Exit codes: 0 finished, 2 bad input, 75 stopped after a checkpoint, 1 failed."""
    show_warnings_in_one_line()
    started_at = time.time()
    try:
        experiment = load_experiment(directory)
        outcome = carry_out(
            experiment, directory, accumulate=accumulate, splits=("valid",), fenced=True
        )
    except SystemExit:
        outcome = Outcome("stopped", "stopped outside of training; the same command goes on")
    except Exception as error:
        outcome = _failure(error, directory)
    if not directory.is_dir():
        outcome = Outcome("stopped", _TAKEN_OVER)
        print(_TAKEN_OVER, file=sys.stderr, flush=True)
        # Nothing may be written any more, by W&B's process neither, which would make the folder.
        os._exit(STOPPED)
    if outcome.stage != "done":
        if outcome.stage != "stopped" or is_first_rank():
            print(outcome.message, file=sys.stderr)
        conclude(
            directory, outcome.stage, outcome.message, step=outcome.step, started_at=started_at
        )
    if outcome.stage == "stopped" and launched_world() is not None:
        return 0  # or the launcher would end the other ranks before they are through
    return {"done": 0, "refused": BAD_INPUT, "stopped": STOPPED}.get(outcome.stage, 1)


def _failure(error: Exception, directory: Path) -> Outcome:
    if is_bad_input(error):
        return Outcome("refused", str(error))
    if directory.is_dir():
        traceback.print_exc()
    first = next(iter(str(error).splitlines()), "")
    return Outcome("failed", f"{type(error).__name__}: {first}")


def _take_signals() -> None:
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGUSR1):
        signal.signal(number, _stop)


def _stop(number: int, frame: FrameType | None) -> None:
    """End outside of training, where there is nothing to save."""
    del number, frame
    sys.exit(STOPPED)


def _stop_with(sentinel: int) -> None:
    """End as after a SIGTERM once the other end of ``sentinel`` closes, which the parent holds,
    or the launcher of the ranks is gone.
    """
    launcher = os.getppid()

    def watch() -> None:
        while os.getppid() == launcher and not wait([sentinel], _POLL_SECONDS):
            pass
        os.kill(os.getpid(), signal.SIGTERM)
        time.sleep(_GRACE_SECONDS)
        os._exit(STOPPED)

    threading.Thread(target=watch, daemon=True).start()
