"""Processes forked from one that has imported torch already: they start in a moment.

It is Python's own fork server. It ends by itself with the process that began it.
"""

from __future__ import annotations

import multiprocessing
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Generator
from contextlib import contextmanager, suppress
from multiprocessing import forkserver, resource_tracker
from multiprocessing.context import ForkServerContext, ForkServerProcess
from types import ModuleType

# What a run imports on its way, W&B's launch tools too, which its every start looks at. None of
# it touches a GPU or starts a thread.
PRELOADED = [
    "ablations.runner.own_process",
    "experiments.run.run",
    "lightning.pytorch.loggers.wandb",
    "wandb.sdk.launch",
]
# What a terminal or a cluster sends to all that it started, and is the runs' parent's to pass on.
_OF_THE_PARENT = {signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGUSR1, signal.SIGUSR2}
# What multiprocessing says of a process whose end nobody could see.
_UNSEEN = 255
_MOMENT_SECONDS = 0.001
_STARTS = 5
_DEAD_SECONDS = 0.2


def warm_up() -> ForkServerContext:
    """Begin to import, in the background, what runs need; the first fork waits for it."""
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(PRELOADED)
    resource_tracker.ensure_running()  # which would unblock the signals
    before = signal.pthread_sigmask(signal.SIG_BLOCK, _OF_THE_PARENT)
    try:
        forkserver.ensure_running()  # a process that is started inherits what is blocked
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)
    return context


def unblock_signals() -> None:
    """Let a forked process have the signals that its server does not heed."""
    signal.pthread_sigmask(signal.SIG_UNBLOCK, _OF_THE_PARENT)


def _lead_a_session(function: Callable[..., None], *arguments: object) -> None:
    os.setsid()
    function(*arguments)


class ForkedProcess:
    """A call of ``function`` in a process that leads a session, and so a group, of its own.

    Signals that ask for an end wait until it calls :func:`unblock_signals`. When this process
    ends the other gets SIGTERM and is waited for.
    """

    def __init__(self, function: Callable[..., None], *arguments: object) -> None:
        self._process = _start(function, *arguments)
        self.pid = _pid(self._process)
        # Else a signal to its group could come before there is one, and be lost.
        while self.poll() is None and not _leads_a_group(self.pid):
            time.sleep(_MOMENT_SECONDS)

    @property
    def returncode(self) -> int | None:
        """As :meth:`poll` gives it."""
        return self.poll()

    def poll(self) -> int | None:
        """The exit code, or minus the number of the signal that killed it; None while it runs."""
        code = self._process.exitcode
        if code == _UNSEEN:  # the server was killed, and the process may be alive
            with suppress(ProcessLookupError, PermissionError):
                os.killpg(self.pid, signal.SIGKILL)
            return -signal.SIGKILL
        return code

    def wait(self, timeout: float | None = None) -> int:
        """Wait for the end; the exit code.

        Raises:
            subprocess.TimeoutExpired: if it has not ended after ``timeout`` seconds.
        """
        self._process.join(timeout)
        code = self.poll()
        if code is None:
            raise subprocess.TimeoutExpired(f"process {self.pid}", timeout or 0.0)
        return code


def _start(function: Callable[..., None], *arguments: object) -> ForkServerProcess:
    """Fork a process, from a new server where the one that was running has been killed.

    What a killed server may have forked ends by itself, as nobody holds the pipe that it watches.
    """
    turn = 0
    while True:
        process = warm_up().Process(
            target=_lead_a_session, args=(function, *arguments), daemon=True
        )
        try:
            with _without_main():
                process.start()
            return process
        except (EOFError, ConnectionError):
            turn += 1
            if turn == _STARTS:
                raise
            time.sleep(_DEAD_SECONDS)  # until it can be seen that the server is gone


def _pid(process: ForkServerProcess) -> int:
    assert process.pid is not None  # it is started
    return process.pid


def _leads_a_group(pid: int) -> bool:
    try:
        return os.getpgid(pid) == pid
    except ProcessLookupError:
        return False


@contextmanager
def _without_main() -> Generator[None]:
    """Hide the script that this process runs: a forked one would run it, too."""
    main = sys.modules["__main__"]
    sys.modules["__main__"] = ModuleType("__main__")
    try:
        yield
    finally:
        sys.modules["__main__"] = main
