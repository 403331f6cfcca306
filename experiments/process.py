"""One run in a process: this one, or one of its own, so that a crash of a trial ends with it.

``python -m experiments.process DIRECTORY`` carries out the run that ``config.json`` describes.
"""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import threading
from dataclasses import replace
from pathlib import Path
from types import FrameType

from experiments.command_line import BAD_INPUT, is_bad_input, show_warnings_in_one_line
from experiments.experiment import Experiment, load_experiment
from experiments.progress import Progress, read_progress, write_progress
from transformer.errors import InputError

LOG_FILE = "log.txt"
# What a trial's process ends with after a signal and a checkpoint (sysexits: EX_TEMPFAIL).
STOPPED = 75


def start(
    directory: Path, *, device: int | None = None, threads: int | None = None
) -> subprocess.Popen[bytes]:
    """Start the run of ``directory``, its output appended to ``log.txt`` there.

    The process leads a group of its own, so that a Ctrl-C at the terminal reaches the parent
    only; it stops by itself, after a checkpoint, when the parent is gone. Its exit codes: 0
    finished, 2 bad input (last line of the log), 75 stopped after a checkpoint, anything else a
    crash.

    Args:
        device: the one GPU that the process may see; None leaves all
        threads: bound of its CPU threads; None leaves torch's own
    """
    environment = dict(os.environ)
    if device is not None:
        environment["CUDA_VISIBLE_DEVICES"] = str(device)
    if threads is not None:
        environment["OMP_NUM_THREADS"] = str(threads)
    with (directory / LOG_FILE).open("ab") as log:
        return subprocess.Popen(
            [sys.executable, "-m", "experiments.process", str(directory)],
            stdin=subprocess.PIPE,
            stdout=log,
            stderr=subprocess.STDOUT,
            env=environment,
            start_new_session=True,
        )


def carry_out(
    experiment: Experiment,
    directory: Path,
    *,
    devices: int = 1,
    accumulate: int = 1,
    max_steps: int | None = None,
    max_minutes: float | None = None,
    splits: tuple[str, ...] = ("valid", "test"),
) -> int:
    """Run here; what ends it early but as it should is one line on standard error.

    Returns:
        0 when finished, 128 + number after a signal, 1 if training diverged.

    Raises:
        InputError: as ``run`` does.
    """
    from experiments.ranks import is_first_rank
    from experiments.run import Limits, run
    from experiments.stopping import StoppedError
    from transformer.training.module import NonFiniteError

    limits = Limits(max_steps=max_steps, max_minutes=max_minutes)
    try:
        run(
            experiment,
            directory,
            devices=devices,
            accumulate=accumulate,
            limits=limits,
            splits=splits,
        )
    except StoppedError as error:
        if is_first_rank():
            print(error, file=sys.stderr)
        return 128 + error.number
    except NonFiniteError as error:
        print(f"training diverged: {error}", file=sys.stderr)
        return 1
    return 0


def _stop_with_parent() -> None:
    """End as after a SIGTERM once standard input closes: the parent holds its other end."""

    def watch() -> None:
        os.read(sys.stdin.fileno(), 1)  # a buffered read would hold a lock at shutdown
        os.kill(os.getpid(), signal.SIGTERM)

    threading.Thread(target=watch, daemon=True).start()


def main() -> int:
    """Carry out the run of the directory that is named on the command line."""
    directory = Path(sys.argv[1])
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, _stop)
    _stop_with_parent()
    show_warnings_in_one_line()
    try:
        code = carry_out(load_experiment(directory), directory, splits=("valid",))
    except (InputError, OSError) as error:
        if not is_bad_input(error):
            raise
        print(error, file=sys.stderr)
        code = BAD_INPUT
    if code in (128 + signal.SIGINT, 128 + signal.SIGTERM):
        return STOPPED
    if code not in (0, BAD_INPUT):
        last = read_progress(directory) or Progress(stage="failed")
        with contextlib.suppress(OSError):
            write_progress(directory, replace(last, stage="failed"))
    return code


def _stop(number: int, frame: FrameType | None) -> None:
    """End outside of training, where there is nothing to save."""
    del number, frame
    sys.exit(STOPPED)


if __name__ == "__main__":
    sys.exit(main())
