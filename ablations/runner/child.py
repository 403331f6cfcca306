"""The process that carries out one attempt: how it ended, what it said, how it is stopped."""

from __future__ import annotations

import os
import signal
import time
from collections import deque
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from ablations.runner import identity
from ablations.runner.endings import Ending, ending
from ablations.runner.machine import Slot
from ablations.runner.process import LOG_FILE, RunProcess
from experiments.run.progress import Progress, printable, read_progress

PROCESS_FILE = ".process"
_ORPHAN_SECONDS = 20.0


class Start(Protocol):
    """How a run's process is started: :func:`ablations.runner.process.start`, or a stand-in."""

    def __call__(
        self, directory: Path, *, devices: tuple[int | str, ...], ranks: int
    ) -> RunProcess: ...


@dataclass(frozen=True, slots=True)
class Child:
    """An attempt's process. ``log_start`` is where its own part of the log begins; it was started
    at ``started_at`` by the monotonic clock and ``started_on`` by the calendar, in seconds.
    """

    directory: Path
    slot: Slot
    process: RunProcess
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
        return None if code is None else ending(self.directory, code, self.started_on)

    def progress(self) -> Progress | None:
        """How far the process has come; None while there is only what an earlier one left."""
        progress = read_progress(self.directory)
        return progress if progress and progress.updated_at >= self.started_on else None

    @property
    def was_killed(self) -> bool:
        """Whether a signal ended it that it could not hear."""
        return self.process.returncode == -signal.SIGKILL

    def describe_exit(self) -> str:
        """The exit code in words."""
        code = self.process.returncode or 0
        if code >= 0:
            return f"exit code {code}"
        name = signal.Signals(-code).name
        return f"killed by {name}" + (" (out of memory?)" if self.was_killed else "")

    def last_lines(self, count: int) -> list[str]:
        """The last lines that the process wrote, blank ones left out."""
        try:
            with (self.directory / LOG_FILE).open("rb") as log:
                log.seek(self.log_start)
                text = (printable(line.decode(errors="replace").rstrip()) for line in log)
                return list(deque(filter(None, text), maxlen=count))
        except OSError:
            return []

    def send(self, number: signal.Signals) -> None:
        """Signal the process and all that it started."""
        _signal_group(self.process.pid, number)


def start_child(directory: Path, slot: Slot, start: Start) -> Child:
    """Start the process of an attempt whose directory is claimed already."""
    log = directory / LOG_FILE
    log_start = log.stat().st_size if log.exists() else 0
    now, started_at = time.time(), time.monotonic()
    process = start(directory, devices=slot.devices, ranks=slot.ranks)
    (directory / PROCESS_FILE).write_text(identity.name_of(process.pid), encoding="utf-8")
    return Child(directory, slot, process, log_start, started_at, now)


class Orphan:
    """What an earlier attempt may have left running on this machine.

    It is asked to end after a checkpoint, so that nothing it has done is lost, and made to if it
    does not. One on another machine cannot be reached: the fence of :mod:`ablations.runner.attempts`
    holds it off.
    """

    def __init__(self, directory: Path | None) -> None:
        """Ask the process of the attempt in ``directory`` to end, if it lives."""
        self._name = ""
        self._deadline = time.monotonic() + _ORPHAN_SECONDS
        with suppress(OSError):
            if directory is not None:
                self._name = (directory / PROCESS_FILE).read_text(encoding="utf-8").strip()
        self.was_there = self._lives()
        if self.was_there:
            self._send(signal.SIGTERM)
            self._send(signal.SIGCONT)  # a paused one could not hear it

    def is_gone(self) -> bool:
        """Whether the way is free; asked again and again."""
        if not self._lives():
            return True
        if time.monotonic() > self._deadline:
            self._send(signal.SIGKILL)
        return False

    def _lives(self) -> bool:
        return identity.is_here(self._name) and not identity.is_gone(self._name)

    def _send(self, number: signal.Signals) -> None:
        _signal_group(identity.pid_of(self._name), number)


def _signal_group(pid: int, number: signal.Signals) -> None:
    with suppress(ProcessLookupError, PermissionError):
        os.killpg(pid, number)
