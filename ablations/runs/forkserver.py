"""Start runs within a moment: fork them from a process that has imported torch.

It is Python's own fork server, which ends by itself with the process that started it.
"""

from __future__ import annotations

import multiprocessing
import os
import signal
import sys
import threading
import time
from collections.abc import Callable, Generator
from contextlib import contextmanager, suppress
from multiprocessing import forkserver, resource_tracker
from multiprocessing.context import ForkServerContext, ForkServerProcess
from pathlib import Path
from types import ModuleType
from typing import Any

from ablations.runs import process
from ablations.runs.executor import Job, Place
from ablations.runs.supervise import RunProcess
from experiments.records.progress import STOP_SIGNALS

# What a run imports, including W&B's launch tools, which each start of W&B looks at. None of these
# modules touches a GPU or starts a thread.
PRELOADED = [
    "ablations.runs.entry",
    "experiments.run",
    "lightning.pytorch.loggers.wandb",
    "wandb.sdk.launch",
]
# A terminal or a cluster sends these to every process of a job; the driver passes them on.
_SIGNALS = {*STOP_SIGNALS, signal.SIGUSR2}
# Multiprocessing's exit code for a process whose end nobody saw.
_UNSEEN = 255
_MOMENT_SECONDS = 0.001
_START_ATTEMPTS = 5
_DEAD_SECONDS = 0.2
_forking = threading.Lock()  # each attempt has a thread


def start(directory: Path, job: Job, place: Place) -> RunProcess:
    """As :func:`ablations.runs.process.start`; several ranks are started by that."""
    if place.ranks > 1:
        return process.start(directory, job, place)
    paths = str(directory.absolute()), str(job.folder)
    return ForkedProcess(_run, *paths, process.environment(job, place), job.accumulate, job.log)


def _run(*arguments: Any) -> None:
    from ablations.runs.entry import run_forked  # imports torch, which the driver must not

    run_forked(*arguments)


class ForkedProcess:
    """A call of ``function`` in a forked process that leads a session and process group.

    It receives no signal that asks for an end before it calls :func:`unblock_signals`. When this
    process exits, the other one gets SIGTERM and is waited for.
    """

    def __init__(self, function: Callable[..., object], *arguments: object) -> None:
        self._process = _fork(function, *arguments)
        assert self._process.pid is not None
        self.pid = self._process.pid
        # A signal to its group would be lost before the group exists.
        while self.poll() is None and not _leads_a_group(self.pid):
            time.sleep(_MOMENT_SECONDS)

    def poll(self) -> int | None:
        """The exit code, or minus the signal that killed the process; None while it runs."""
        code = self._process.exitcode
        if code == _UNSEEN:  # the server was killed, and the process may be alive
            process.signal_group(self.pid, signal.SIGKILL)
            return -signal.SIGKILL
        return code


def unblock_signals() -> None:
    """Let a forked process receive the signals that its server blocks."""
    signal.pthread_sigmask(signal.SIG_UNBLOCK, _SIGNALS)


def _fork(function: Callable[..., object], *arguments: object) -> ForkServerProcess:
    """Fork a process, from a new server if the running one has been killed.

    Whatever a killed server still forked ends by itself, as nobody holds the pipe that it watches.
    """
    for attempt in range(_START_ATTEMPTS):
        forked = _running_server().Process(
            target=_call_in_own_session, args=(function, *arguments), daemon=True
        )
        with suppress(EOFError, ConnectionError), _forking, _without_main():
            forked.start()
            return forked
        time.sleep(_DEAD_SECONDS * attempt)  # until multiprocessing sees that the server is gone
    raise ChildProcessError("the processes of runs cannot be started: their fork server dies")


def _running_server() -> ForkServerContext:
    """Start the server if it is not running; it imports in the background."""
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(PRELOADED)
    resource_tracker.ensure_running()  # which would unblock the signals
    before = signal.pthread_sigmask(signal.SIG_BLOCK, _SIGNALS)
    try:
        forkserver.ensure_running()  # a new process inherits the mask
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)
    return context


def _call_in_own_session(function: Callable[..., object], *arguments: object) -> None:
    os.setsid()
    function(*arguments)


def _leads_a_group(pid: int) -> bool:
    try:
        return os.getpgid(pid) == pid
    except ProcessLookupError:
        return False


@contextmanager
def _without_main() -> Generator[None]:
    """Hide this process's main script, which a forked process would run again."""
    main = sys.modules["__main__"]
    sys.modules["__main__"] = ModuleType("__main__")
    try:
        yield
    finally:
        sys.modules["__main__"] = main
