"""The process that carries out one cell: how it ended, what it said, how it is stopped."""

from __future__ import annotations

import os
import signal
import subprocess
import time
from collections import deque
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Literal, Protocol

from ablations.fleet.lock import is_alive
from ablations.fleet.machine import Slot
from ablations.table import Cell
from experiments.process import LOG_FILE
from experiments.progress import Progress, read_progress

PID_FILE = ".pid"
_BAD_INPUT, _STOPPED = 2, 75
_ORPHAN_SECONDS = 60.0

Ending = Literal["finished", "bad input", "stopped", "crashed"]


class Start(Protocol):
    """How a run's process is started: :func:`experiments.process.start`, or a stand-in."""

    def __call__(
        self, directory: Path, *, device: int | None, threads: int | None
    ) -> subprocess.Popen[bytes]: ...


@dataclass(frozen=True, slots=True)
class Child:
    """One cell's process. ``log_start`` is where its own part of the log begins; it was started
    at ``started_at`` by the monotonic clock and ``started_on`` by the calendar, in seconds.
    """

    cell: Cell
    directory: Path
    slot: Slot
    process: subprocess.Popen[bytes]
    log_start: int
    started_at: float
    started_on: float

    @property
    def elapsed(self) -> float:
        """Seconds since the start."""
        return time.monotonic() - self.started_at

    def ending(self) -> Ending | None:
        """How the process ended, None while it runs."""
        code = self.process.poll()
        if code is None:
            return None
        (self.directory / PID_FILE).unlink(missing_ok=True)
        known: dict[int, Ending] = {0: "finished", _BAD_INPUT: "bad input", _STOPPED: "stopped"}
        return known.get(code, "crashed")

    def progress(self) -> Progress | None:
        """How far the process has come; None while there is only what an earlier one left."""
        progress = read_progress(self.directory)
        return progress if progress and progress.updated_at >= self.started_on else None

    def describe_exit(self) -> str:
        """The exit code in words."""
        code = self.process.returncode
        if code >= 0:
            return f"exit code {code}"
        name = signal.Signals(-code).name
        return f"killed by {name}" + (" (out of memory?)" if name == "SIGKILL" else "")

    def last_lines(self, count: int) -> list[str]:
        """The last lines that the process wrote, blank ones left out."""
        try:
            with (self.directory / LOG_FILE).open("rb") as log:
                log.seek(self.log_start)
                text = (line.decode(errors="replace").rstrip() for line in log)
                return list(deque(filter(None, text), maxlen=count))
        except OSError:
            return []

    def send(self, number: signal.Signals) -> None:
        """Signal the process and all that it started."""
        _signal_group(self.process.pid, number)


def start_child(cell: Cell, root: Path, slot: Slot, start: Start) -> Child:
    """Start the process of ``cell``, whose directory is claimed already."""
    directory = cell.directory(root)
    log = directory / LOG_FILE
    log_start = log.stat().st_size if log.exists() else 0
    now = time.time()
    process = start(directory, device=slot.device, threads=slot.threads)
    (directory / PID_FILE).write_text(f"{process.pid}\n", encoding="utf-8")
    return Child(cell, directory, slot, process, log_start, time.monotonic(), now)


def end_orphan(cell: Cell, root: Path) -> bool:
    """End a process of ``cell`` that outlived its coordinator, after its checkpoint.

    Two processes in one directory would spoil each other's work. Whether there was one is told.
    """
    path = cell.directory(root) / PID_FILE
    try:
        pid = int(path.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return False
    found = _runs(pid, cell)
    if found:
        _signal_group(pid, signal.SIGTERM)
        deadline = time.monotonic() + _ORPHAN_SECONDS
        while _runs(pid, cell) and time.monotonic() < deadline:
            time.sleep(0.1)
        _signal_group(pid, signal.SIGKILL)
    path.unlink(missing_ok=True)
    return found


def _runs(pid: int, cell: Cell) -> bool:
    """Whether ``pid`` is the process of ``cell``, and not a later one that got the number."""
    if not is_alive(pid):
        return False
    if Path("/proc/self/cmdline").exists():
        try:
            command = Path(f"/proc/{pid}/cmdline").read_text(encoding="utf-8", errors="replace")
        except OSError:
            return False
    else:
        listing = ["ps", "-o", "command=", "-p", str(pid)]
        command = subprocess.run(listing, capture_output=True, text=True, check=False).stdout
    return str(cell) in command


def _signal_group(pid: int, number: signal.Signals) -> None:
    with suppress(ProcessLookupError, PermissionError):
        os.killpg(pid, number)
