"""What a process and its children hold in memory while something goes on; Linux alone tells."""

from __future__ import annotations

import os
import threading
from collections.abc import Generator
from contextlib import contextmanager, suppress
from pathlib import Path

_SECONDS = 0.2
_PROC = Path("/proc")


class Peak:
    """The most bytes seen; None where the system does not tell."""

    def __init__(self) -> None:
        self.bytes: int | None = None

    def look(self) -> None:
        """Add up what the processes hold now; a page that several share counts once."""
        held = [bytes_held(process) for process in _family(os.getpid())]
        if any(held):
            self.bytes = max(self.bytes or 0, sum(held))


@contextmanager
def peak_memory_of_all() -> Generator[Peak]:
    """Watch this process and its children, some times a second."""
    peak, over = Peak(), threading.Event()

    def watch() -> None:
        while not over.wait(_SECONDS):
            peak.look()

    peak.look()
    thread = threading.Thread(target=watch, daemon=True)
    thread.start()
    try:
        yield peak
    finally:
        over.set()
        thread.join()


def bytes_held(process: int) -> int:
    """What a process holds now; 0 where the system does not tell."""
    with suppress(OSError):  # it has just ended
        for line in (_PROC / str(process) / "smaps_rollup").read_text().splitlines():
            if line.startswith("Pss:"):
                return 1024 * int(line.split()[1])
    return 0


def _family(process: int) -> set[int]:
    parents: dict[int, int] = {}
    for stat in _PROC.glob("[0-9]*/stat"):
        with suppress(OSError):
            # The name, in brackets, may hold anything; the parent is the second field behind it.
            parents[int(stat.parent.name)] = int(stat.read_text().rpartition(")")[2].split()[1])
    family = {process}
    while more := {child for child, parent in parents.items() if parent in family} - family:
        family |= more
    return family
