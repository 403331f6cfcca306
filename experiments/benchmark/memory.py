"""How much memory a process and its children hold while something runs; only Linux says.

It imports no torch, as it watches processes that do without.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Generator
from contextlib import contextmanager, suppress
from pathlib import Path


class PeakMemory:
    """The most bytes that were held at any time; None where the system does not say."""

    def __init__(self) -> None:
        self.bytes: int | None = None

    def measure(self) -> None:
        """Sum what this process and its children hold now; shared pages count once."""
        held = [bytes_held(process) for process in _family(os.getpid())]
        if any(held):
            self.bytes = max(self.bytes or 0, sum(held))


@contextmanager
def watch_peak_memory(seconds: float = 0.2) -> Generator[PeakMemory]:
    """Measure the memory of this process and its children every ``seconds``."""
    peak, over = PeakMemory(), threading.Event()

    def watch() -> None:
        while not over.wait(seconds):
            peak.measure()

    peak.measure()
    thread = threading.Thread(target=watch, daemon=True)
    thread.start()
    try:
        yield peak
    finally:
        over.set()
        thread.join()


def bytes_held(process: int) -> int:
    """What a process holds now; 0 where the system does not say."""
    with suppress(OSError):  # it has just ended
        for line in Path(f"/proc/{process}/smaps_rollup").read_text().splitlines():
            if line.startswith("Pss:"):
                return 1024 * int(line.split()[1])
    return 0


def _family(process: int) -> set[int]:
    """A process with its children, their children, and so on."""
    parents: dict[int, int] = {}
    for stat in Path("/proc").glob("[0-9]*/stat"):
        with suppress(OSError):
            # The name, in brackets, may contain anything; the parent is the second field after it.
            parents[int(stat.parent.name)] = int(stat.read_text().rpartition(")")[2].split()[1])
    family = {process}
    while more := {child for child, parent in parents.items() if parent in family} - family:
        family |= more
    return family
