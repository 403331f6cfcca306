"""The processes of a driver, found by their working directory in ``/proc``."""

from __future__ import annotations

import os
import secrets
import signal
import subprocess
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path

_MOMENT_SECONDS = 0.02
_PARENT, _GROUP = 1, 2


class DriverProcess:
    """One call of ``python -m ablations``, and the processes that come of it."""

    def __init__(
        self, command: Sequence[str], environment: Mapping[str, str], folder: Path
    ) -> None:
        self.mark = secrets.token_hex(8)  # of the folder that it works in
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
        found: list[int] = []
        for path in Path("/proc").glob("[0-9]*/cwd"):
            with suppress(OSError):  # it ends, or is another user's
                if self.mark in path.readlink().parts:
                    found.append(int(path.parent.name))
        return [pid for pid in found if pid != self.process.pid]

    @property
    def runs(self) -> list[int]:
        """The processes that carry out an attempt: each leads a process group."""
        return [pid for pid in self.descendants if field(pid, _GROUP) == pid]

    @property
    def parents_of_runs(self) -> list[int]:
        """The fork server, or the processes of Ray's that wait for runs on a cluster."""
        return sorted({parent_of(pid) for pid in self.runs} - {self.process.pid, 0, 1})

    def send_all(self, number: signal.Signals) -> None:
        """Signal the driver and all its processes, as if its machine did it."""
        for pid in [self.process.pid, *self.descendants] if self.lives else self.descendants:
            send(pid, number)

    def end(self) -> None:
        """Kill it and its processes, also those that are started meanwhile."""
        send(self.process.pid, signal.SIGKILL)
        self.process.wait()
        unseen = 0
        while unseen < 2:
            found = self.descendants
            for pid in found:
                send(pid, signal.SIGKILL)
            unseen = 0 if found else unseen + 1
            time.sleep(_MOMENT_SECONDS)

    def last_words(self, lines: int = 15) -> str:
        """The end of its log, and its exit code."""
        said = self.log.read_text(encoding="utf-8", errors="replace").splitlines()[-lines:]
        return "\n".join([f"--- driver {self.mark}, exit {self.process.poll()}", *said])


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


def send(pid: int, number: signal.Signals) -> None:
    """Signal a process that may be gone."""
    with suppress(ProcessLookupError):
        os.kill(pid, number)
