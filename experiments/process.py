"""One run in a process of its own, so that a crash or a leak of one trial ends with it.

``python -m experiments.process DIRECTORY`` carries out the run that ``config.json`` describes.
"""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

LOG_FILE = "log.txt"


def start(directory: Path, *, device: int | None = None, threads: int | None = None) -> "subprocess.Popen[bytes]":
    """Start the run of ``directory``, its output appended to ``log.txt`` there.

    ``device`` is the one GPU that the process may see; ``threads`` bounds its CPU threads.
    The process leads a group of its own, so that a Ctrl-C at the terminal reaches the parent
    only. Its exit codes: 0 finished, 2 bad input (last line of the log), 75 stopped by a signal
    after a checkpoint, anything else a crash.
    """
    environment = dict(os.environ)
    if device is not None:
        environment["CUDA_VISIBLE_DEVICES"] = str(device)
    if threads is not None:
        environment["OMP_NUM_THREADS"] = str(threads)
    with (directory / LOG_FILE).open("ab") as log:
        return subprocess.Popen(
            [sys.executable, "-m", "experiments.process", str(directory)],
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=subprocess.STDOUT,
            env=environment,
            start_new_session=True,
        )
