"""Fork runs from a process that has imported torch.

``python -m ablations.runs.forkserver FD`` is that process, which the socket ``FD`` tells what to
run. Each run has a process of its own that waits for it, so a server that is killed takes none
along. All of them watch their standard input, which closes when the driver is gone.
"""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
import threading
from contextlib import suppress
from importlib import import_module
from pathlib import Path
from typing import NoReturn

from ablations.runs import process
from ablations.runs.executor import Job, Place, RunProcess
from experiments.records.progress import STOP_SIGNALS, STOPPED_EXIT_CODE

# What a run imports, including W&B's launch tools, which each start of W&B looks at. None of these
# modules touches a GPU or starts a thread.
_PRELOADED = (
    "ablations.runs.entry",
    "experiments.run",
    "lightning.pytorch.loggers.wandb",
    "wandb.sdk.launch",
)
_START_ATTEMPTS = 5
_NUMBER_BYTES = 8
_MOST_BYTES = 65_536  # of an order


class ForkServer:
    """Starts runs on this machine; a server that was killed is replaced."""

    def __init__(self) -> None:
        self._lock = threading.Lock()  # each attempt has a thread
        self._server: subprocess.Popen[bytes] | None = None
        self._orders: socket.socket | None = None
        self._watched, self._held = os.pipe()

    def start(self, directory: Path, job: Job, place: Place) -> RunProcess:
        """As :func:`ablations.runs.process.start`; several ranks are started by that."""
        if place.ranks > 1:
            return process.start(directory, job, place)
        order = [place.environment, str(directory.absolute()), str(job.accumulate), job.log]
        with (directory / process.LOG_FILE).open("ab") as log, self._lock:
            for _ in range(_START_ATTEMPTS):
                with suppress(OSError):
                    return self._fork(json.dumps(order).encode(), log.fileno())
                self._end_server()
        raise ChildProcessError("the processes of runs cannot be started: their fork server dies")

    def _fork(self, order: bytes, log: int) -> RunProcess:
        if self._server is None or self._orders is None:
            self._orders, theirs = socket.socketpair()
            command = [sys.executable, "-m", __name__, str(theirs.fileno())]
            with theirs:
                self._server = subprocess.Popen(
                    command,
                    stdin=self._watched,
                    pass_fds=[theirs.fileno()],
                    env=process.environment(),
                )
        answers, theirs = socket.socketpair()
        with theirs:
            socket.send_fds(self._orders, [order], [theirs.fileno(), log])
        return _ForkedRun(answers)

    def _end_server(self) -> None:
        if self._server is not None and self._orders is not None:
            self._orders.close()
            self._server.kill()
            self._server.wait()
        self._server = self._orders = None

    def close(self) -> None:
        """End the server; runs that are left stop by themselves."""
        self._end_server()
        os.close(self._watched)
        os.close(self._held)


class _ForkedRun:
    """A run that leads a process group, and the socket that tells its number and its exit code."""

    def __init__(self, answers: socket.socket) -> None:
        self._answers = answers
        self._code: int | None = None
        pid = _hear(answers)
        if pid is None:
            answers.close()
            raise ConnectionError("the server was killed")
        self.pid = pid
        answers.setblocking(False)

    def poll(self) -> int | None:
        if self._code is None:
            try:
                self._code = _hear(self._answers)
            except BlockingIOError:
                return None
            self._answers.close()
        if self._code is None:  # what waited for it was killed, and it may be alive
            process.signal_group(self.pid, signal.SIGKILL)
            self._code = -signal.SIGKILL
        return self._code


def _hear(answers: socket.socket) -> int | None:
    found = answers.recv(_NUMBER_BYTES)
    return int.from_bytes(found, signed=True) if found else None


def _tell(answers: socket.socket, number: int) -> None:
    with suppress(OSError):  # the driver is gone
        answers.sendall(number.to_bytes(_NUMBER_BYTES, signed=True))


def _serve(orders: socket.socket) -> None:
    """Fork what is ordered until the driver is gone."""
    # A terminal or a cluster sends these to every process of a job; the driver passes them on.
    signal.pthread_sigmask(signal.SIG_BLOCK, STOP_SIGNALS)
    for name in _PRELOADED:
        import_module(name)
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)  # nobody asks how those end that wait for runs
    while True:
        order, descriptors, *_ = socket.recv_fds(orders, _MOST_BYTES, 2)
        if not order:
            return
        if os.fork() == 0:
            orders.close()
            _carry_out(order, *descriptors)
        for descriptor in descriptors:
            os.close(descriptor)


def _carry_out(order: bytes, descriptor: int, log: int) -> NoReturn:
    """Fork a run, and tell its number and then how it ended."""
    answers = socket.socket(fileno=descriptor)
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    if pid := os.fork():
        os.close(log)
        os.setpgid(pid, pid)
        _tell(answers, pid)
        _, status = os.waitpid(pid, 0)
        _tell(answers, os.waitstatus_to_exitcode(status))
        os._exit(0)
    answers.close()
    for stream in (1, 2):
        os.dup2(log, stream)
    variables, *arguments = json.loads(order)
    os.environ.update(variables)
    from ablations.runs.entry import main  # imports torch, which the driver must not

    try:
        code = main(arguments)
    except SystemExit:  # a signal before the run began
        code = STOPPED_EXIT_CODE
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(code)  # what the server has registered to be done at exit is not this process's


if __name__ == "__main__":
    _serve(socket.socket(fileno=int(sys.argv[1])))
