"""A fleet's processes as a storm sees them: which there are, whose they are, how they are hit.

Every process carries the name of its worker in its environment, by which it is found whatever
started it. That takes Linux's ``/proc``.
"""

from __future__ import annotations

import os
import secrets
import signal
import subprocess
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path

from experiments.process import RunProcess

_VARIABLE = "STORM_WORKER"


Launch = Callable[[Sequence[str], Mapping[str, str], Path], RunProcess]


def launch(command: Sequence[str], environment: Mapping[str, str], log: Path) -> RunProcess:
    """Start a process in the log's folder."""
    with log.open("wb") as said:
        return subprocess.Popen(
            command,
            cwd=log.parent,
            env=environment,
            stdin=subprocess.DEVNULL,
            stdout=said,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )


class Worker:
    """One process of ``python -m ablations``, and all that came of it: a host, so to say."""

    def __init__(
        self, launch: Launch, command: Sequence[str], environment: Mapping[str, str], folder: Path
    ) -> None:
        self.mark = secrets.token_hex(8)
        self.log = folder / f"{self.mark}.log"
        self.paused = False
        self.process = launch(command, {**environment, _VARIABLE: self.mark}, self.log)

    @property
    def lives(self) -> bool:
        """Whether the worker itself has not ended."""
        return self.process.poll() is None

    @property
    def trials(self) -> list[int]:
        """The processes that the worker has started, and theirs."""
        entry = f"{_VARIABLE}={self.mark}".encode()
        found: list[int] = []
        for path in Path("/proc").glob("[0-9]*/environ"):
            with suppress(OSError):  # it ends, or is another user's
                if entry in path.read_bytes().split(b"\0"):
                    found.append(int(path.parent.name))
        return [pid for pid in found if pid != self.process.pid]

    def send(self, number: signal.Signals) -> None:
        """Signal the worker alone."""
        if self.lives:
            send(self.process.pid, number)

    def send_all(self, number: signal.Signals) -> None:
        """Signal the worker and all that came of it, as if its machine did it."""
        self.send(number)
        for pid in self.trials:
            send(pid, number)

    def end(self) -> None:
        """Leave nothing of it."""
        self.send(signal.SIGKILL)
        while trials := self.trials:
            for pid in trials:
                send(pid, signal.SIGKILL)
        self.process.wait()

    def last_words(self, lines: int = 15) -> str:
        """The end of what it said, and how it ended."""
        said = self.log.read_text(encoding="utf-8", errors="replace").splitlines()[-lines:]
        return "\n".join([f"--- worker {self.mark}, exit {self.process.poll()}", *said])


def send(pid: int, number: signal.Signals) -> None:
    """Signal a process that may be gone."""
    with suppress(ProcessLookupError):
        os.kill(pid, number)
