"""The entry point of a run's process.

``python -m ablations.runs.entry DIRECTORY ACCUMULATE LOG CHECKPOINTS KEEP`` carries out the run
that ``config.json`` describes, or one rank of it, until its standard input closes. It keeps at
least CHECKPOINTS checkpoints; KEEP says whether they stay ``whole`` once the run is scored, or only
their ``weights``.
"""

from __future__ import annotations

import os
import select
import signal
import sys
import threading
import time
import traceback
from collections.abc import Sequence
from pathlib import Path
from types import FrameType
from typing import Any, cast

from experiments.command_line import BAD_INPUT, is_bad_input, prepare_streams
from experiments.devices import launched_world
from experiments.records.experiment import Log, load_experiment
from experiments.records.ownership import is_first_rank
from experiments.records.progress import (
    BLOCKED_EXIT_CODE,
    GRACE_SECONDS,
    STOPPED_EXIT_CODE,
    RunState,
    record_end,
    stop_signals,
)
from experiments.run import Outcome, execute
from transformer.errors import BlockedError, InputError

_POLL_SECONDS = 1.0


def main(arguments: Sequence[str], driver: int = 0) -> int:
    """Carry out a run until the driver's end of a pipe closes.

    Exit codes: 0 done, 1 failed or diverged, 2 bad input, 74 blocked by its surroundings (such as a
    full disk), 75 stopped after a checkpoint.

    Args:
        arguments: those in the module's docstring
        driver: the file descriptor of this end of the pipe
    """
    folder, accumulate, log, checkpoints, keep = arguments
    _exit_on_signals()
    threading.Thread(target=_watch_parent, args=(os.getppid(), driver), daemon=True).start()
    prepare_streams()
    directory, started_at = Path(folder), time.time()
    outcome = _carry_out(
        directory,
        accumulate=int(accumulate),
        log=cast(Log, log),
        checkpoints=int(checkpoints),
        keep_checkpoints=keep == "whole",
    )
    for number in stop_signals():  # they would only interrupt the exit handlers
        signal.signal(number, signal.SIG_IGN)
    if not directory.is_dir():
        print("another attempt has taken this run over", file=sys.stderr, flush=True)
        # W&B's exit handlers would create the directory again.
        os._exit(STOPPED_EXIT_CODE)
    state = outcome.state
    if state != RunState.DONE:
        if state != RunState.STOPPED or is_first_rank():
            print(outcome.message, file=sys.stderr)
        record_end(directory, state, outcome.message, step=outcome.step, started_at=started_at)
    if state == RunState.STOPPED:
        # With another exit code the launcher would kill the other ranks before they have finished.
        return STOPPED_EXIT_CODE if launched_world() is None else 0
    codes = {RunState.DONE: 0, RunState.REFUSED: BAD_INPUT, RunState.BLOCKED: BLOCKED_EXIT_CODE}
    return codes.get(state, 1)


def _carry_out(directory: Path, **settings: Any) -> Outcome:
    try:
        return execute(load_experiment(directory), directory, fenced=True, **settings)
    except SystemExit:  # from a signal: execute() turns all others into failures
        message = "stopped outside of training; the same command continues"
        return Outcome(RunState.STOPPED, message)
    except BaseException as error:  # the user's code may raise anything, even GeneratorExit
        if isinstance(error, Exception) and is_bad_input(error):
            is_own = isinstance(error, InputError) and not isinstance(error, BlockedError)
            return Outcome(RunState.REFUSED if is_own else RunState.BLOCKED, str(error))
        if directory.is_dir():
            traceback.print_exc()
        first = next(iter(str(error).splitlines()), "")
        return Outcome(RunState.FAILED, f"{type(error).__name__}: {first}".removesuffix(": "))


def _exit_on_signals() -> None:
    """Exit on a signal outside of training, where there is nothing to save."""

    def stop(_number: int, _frame: FrameType | None) -> None:
        sys.exit(STOPPED_EXIT_CODE)

    for number in stop_signals():
        signal.signal(number, stop)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, stop_signals())  # the fork server blocks them


def _watch_parent(parent: int, driver: int) -> None:
    """Send this process SIGTERM once the driver, or the parent that launched it, is gone."""
    while os.getppid() == parent and not select.select([driver], [], [], _POLL_SECONDS)[0]:
        pass
    os.kill(os.getpid(), signal.SIGTERM)
    time.sleep(GRACE_SECONDS)  # a rank without its peers may hang where no signal interrupts it
    os._exit(STOPPED_EXIT_CODE)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
