"""A driver's processes as a storm sees them, found by their working directory in ``/proc``."""

from __future__ import annotations

import os
import secrets
import signal
import subprocess
import sys
import time
from collections.abc import Generator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path

from tests.ablations.storm.place import ROOT

_MOMENT_SECONDS = 0.02
_PARENT, _GROUP = 1, 2
# The folders of all drivers that these tests have started begin so.
_OURS = secrets.token_hex(8)


class DriverProcess:
    """One call of ``python -m ablations``, and all that came of it."""

    def __init__(
        self, command: Sequence[str], environment: Mapping[str, str], folder: Path
    ) -> None:
        self.mark = f"{_OURS}-{secrets.token_hex(4)}"
        self.log = folder / self.mark / "log.txt"
        self.log.parent.mkdir()
        self.started_at = time.monotonic()
        with self.log.open("wb") as said:
            self.process = subprocess.Popen(
                command,
                cwd=self.log.parent,
                env=environment,
                stdin=subprocess.DEVNULL,
                stdout=said,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )

    @property
    def lives(self) -> bool:
        """Whether the driver itself has not ended."""
        return self.process.poll() is None

    @property
    def descendants(self) -> list[int]:
        """The processes that the driver, or Ray for it, has started, and theirs."""
        return [pid for pid in marked(self.mark) if pid != self.process.pid]

    @property
    def runs(self) -> list[int]:
        """Those that carry out an attempt: each leads a process group."""
        return [pid for pid in self.descendants if field(pid, _GROUP) == pid]

    @property
    def parents_of_runs(self) -> list[int]:
        """What waits for each run: a process of the fork server's, or of Ray's on a cluster."""
        return sorted({parent_of(pid) for pid in self.runs} - {self.process.pid, 0, 1})

    def send_all(self, number: signal.Signals) -> None:
        """Signal the driver and all that came of it, as if its machine did it."""
        for pid in [self.process.pid, *self.descendants] if self.lives else self.descendants:
            send(pid, number)

    def end(self) -> None:
        """Leave nothing of it."""
        send(self.process.pid, signal.SIGKILL)
        self.process.wait()
        end_marked(self.mark)

    def last_words(self, lines: int = 15) -> str:
        """The end of what it said, and how it ended."""
        said = self.log.read_text(encoding="utf-8", errors="replace").splitlines()[-lines:]
        return "\n".join([f"--- driver {self.mark}, exit {self.process.poll()}", *said])


def marked(mark: str) -> list[int]:
    """The processes of that driver, or of all drivers whose marks begin so."""
    found: list[int] = []
    for path in Path("/proc").glob("[0-9]*/cwd"):
        with suppress(OSError):  # it ends, or is another user's
            if any(part.startswith(mark) for part in path.readlink().parts):
                found.append(int(path.parent.name))
    return found


def parent_of(pid: int) -> int:
    """The number of a process's parent; 0 if it is gone."""
    return field(pid, _PARENT)


def field(pid: int, number: int) -> int:
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
    """End all processes that tests have left behind, also where those were killed themselves."""
    code = "import sys; sys.stdin.read(); from tests.ablations.storm import processes; "
    command = [sys.executable, "-c", code + f"processes.end_marked({_OURS!r})"]
    process = subprocess.Popen(command, stdin=subprocess.PIPE, cwd=ROOT, start_new_session=True)
    try:
        yield
    finally:
        process.communicate()


def send(pid: int, number: signal.Signals) -> None:
    """Signal a process that may be gone."""
    with suppress(ProcessLookupError):
        os.kill(pid, number)
