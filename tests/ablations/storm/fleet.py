"""A fleet's processes as a storm sees them: which there are, whose they are, how they are hit.

Every process has its worker's folder as its working directory, by which it is found whatever
started it. That takes Linux's ``/proc``.
"""

from __future__ import annotations

import os
import secrets
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Generator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path

from ablations.runner.process import RunProcess

ROOT = Path(__file__).parents[3]
_MOMENT_SECONDS = 0.02
_PARENT, _SESSION = 1, 3
# The folders of all workers that these tests have started begin so.
_OURS = secrets.token_hex(8)


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
        self.mark = f"{_OURS}-{secrets.token_hex(4)}"
        self.log = folder / self.mark / "log.txt"
        self.log.parent.mkdir()
        self.paused = False
        self.started_at = time.monotonic()
        self.process = launch(command, environment, self.log)

    @property
    def lives(self) -> bool:
        """Whether the worker itself has not ended."""
        return self.process.poll() is None

    @property
    def descendants(self) -> list[int]:
        """The processes that the worker has started, and theirs."""
        return [pid for pid in marked(self.mark) if pid != self.process.pid]

    @property
    def trials(self) -> list[int]:
        """Those that carry out an attempt: each leads a session of its own."""
        return [pid for pid in self.descendants if _field(pid, _SESSION) == pid]

    @property
    def fork_servers(self) -> list[int]:
        """Those that trials of real training are forked from."""
        return sorted({_field(pid, _PARENT) for pid in self.trials} - {self.process.pid, 0, 1})

    def send(self, number: signal.Signals) -> None:
        """Signal the worker alone."""
        if self.lives:
            send(self.process.pid, number)

    def send_all(self, number: signal.Signals) -> None:
        """Signal the worker and all that came of it, as if its machine did it."""
        self.send(number)
        for pid in self.descendants:
            send(pid, number)

    def end(self) -> None:
        """Leave nothing of it."""
        self.send(signal.SIGKILL)
        self.process.wait()
        end_marked(self.mark)

    def last_words(self, lines: int = 15) -> str:
        """The end of what it said, and how it ended."""
        said = self.log.read_text(encoding="utf-8", errors="replace").splitlines()[-lines:]
        return "\n".join([f"--- worker {self.mark}, exit {self.process.poll()}", *said])


def marked(mark: str) -> list[int]:
    """The processes of that worker, or of all workers whose marks begin so."""
    found: list[int] = []
    for path in Path("/proc").glob("[0-9]*/cwd"):
        with suppress(OSError):  # it ends, or is another user's
            if any(part.startswith(mark) for part in path.readlink().parts):
                found.append(int(path.parent.name))
    return found


def _field(pid: int, number: int) -> int:
    """A number of ``/proc/PID/stat``, counted from the state; 0 of a process that is gone."""
    try:
        text = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8", errors="replace")
    except OSError:
        return 0
    return int(text.rpartition(")")[2].split()[number])


def end_marked(mark: str) -> None:
    """Kill them, those too that they start meanwhile."""
    unseen = 0
    while unseen < 2:
        found = marked(mark)
        for pid in found:
            send(pid, signal.SIGKILL)
        unseen = 0 if found else unseen + 1
        time.sleep(_MOMENT_SECONDS)


@contextmanager
def keeper() -> Generator[None]:
    """End all workers that tests have left behind, also where those were killed themselves."""
    code = "import sys; sys.stdin.read(); from tests.ablations.storm import fleet; "
    command = [sys.executable, "-c", code + f"fleet.end_marked({_OURS!r})"]
    process = subprocess.Popen(command, stdin=subprocess.PIPE, cwd=ROOT, start_new_session=True)
    try:
        yield
    finally:
        process.communicate()


def send(pid: int, number: signal.Signals) -> None:
    """Signal a process that may be gone."""
    with suppress(ProcessLookupError):
        os.kill(pid, number)
