"""Which directories are shown, each read once for all viewers and only while somebody looks."""

from __future__ import annotations

import asyncio
import json
import os
import re
import time
import traceback
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from ablations.dashboard.page import render_directory
from ablations.dashboard.reading import Reader, Reading
from ablations.files import PLAN_FILE, SEARCH_FILE
from ablations.status.planned import is_claimed
from experiments.run.experiment import CONFIG_FILE
from transformer.errors import InputError

INTERVAL_SECONDS = 2.0
# Where a reading takes long, as many times as long is waited for the next, up to so many intervals.
_PATIENCE = 10
_MOST_INTERVALS = 5
_DEPTH = 3


def find_directories(root: Path) -> Iterator[Path]:
    """``root`` if it is a table's or a search's directory, else those below it."""
    if is_claimed(root):
        yield root
        return
    for folder, names, files in os.walk(root):
        depth = len(Path(folder).relative_to(root).parts)
        if PLAN_FILE in files or SEARCH_FILE in files:
            yield Path(folder)
            names.clear()
        elif CONFIG_FILE in files or depth == _DEPTH:
            names.clear()  # a single run has many files, but none of ours
        names[:] = sorted(name for name in names if not name.startswith("."))


@dataclass(frozen=True, slots=True)
class Shown:
    """A directory as viewers see it, under a ``name`` for addresses.

    ``parts`` are JSON texts: ``html``, and one specification for each figure.
    """

    name: str
    directory: Path
    html: str = ""
    parts: Mapping[str, str] | None = None


class _Watched:
    """One directory with its last reading, which is kept while it cannot be read."""

    def __init__(self, shown: Shown) -> None:
        self.shown = shown
        self._inode = 0
        self._reader = Reader(shown.directory)
        self._reading: Reading | None = None
        self._problem = ""

    def read(self) -> Shown:
        """Read it again."""
        try:
            self._read()
            self._problem = ""
        except (InputError, OSError) as error:
            self._problem = str(error)
        except Exception as error:
            # A bug that one directory brings to light must not take the others away.
            problem = f"{type(error).__name__}: {error}"
            if problem != self._problem:
                traceback.print_exc()
            self._problem = problem
        html = render_directory(self.shown, self._reading, self._problem)
        figures = self._reading.figures if self._reading else {}
        parts = {name: json.dumps(spec, allow_nan=False) for name, spec in figures.items()}
        self.shown = replace(self.shown, html=html, parts={"html": json.dumps(html), **parts})
        return self.shown

    def _read(self) -> None:
        inode = self.shown.directory.stat().st_ino
        if inode != self._inode:  # another table has taken its place: nothing read before holds
            self._inode, self._reader = inode, Reader(self.shown.directory)
        self._reading = self._reader.read()


class Directories:
    """The directories below ``roots``, also those that appear later.

    Args:
        roots: tables, searches, or folders of them
        interval: seconds between two readings, or more if a reading takes long
    """

    def __init__(self, roots: Sequence[Path], interval: float = INTERVAL_SECONDS) -> None:
        self.roots, self.interval = tuple(roots), interval
        self._watched: dict[Path, _Watched] = {}
        self._all: tuple[Shown, ...] = ()
        self._lock = asyncio.Lock()
        self._next = 0.0

    async def read(self, name: str | None = None) -> tuple[Shown, ...]:
        """All of them, or that of a name, as they were at most an interval ago."""
        async with self._lock:
            if time.monotonic() >= self._next:
                began = time.monotonic()
                loop = asyncio.get_running_loop()
                self._all = await loop.run_in_executor(None, self._read)
                took = time.monotonic() - began
                longest = _MOST_INTERVALS * self.interval
                self._next = began + max(self.interval, min(longest, _PATIENCE * took))
        return tuple(shown for shown in self._all if name is None or shown.name == name)

    def _read(self) -> tuple[Shown, ...]:
        for root in self.roots:
            for directory in find_directories(root):
                if directory not in self._watched:
                    shown = Shown(self._name(directory), directory)
                    self._watched[directory] = _Watched(shown)
        return tuple(watched.read() for watched in self._watched.values())

    def _name(self, directory: Path) -> str:
        """The directory's own name as an address can hold it, with a number if it is taken."""
        stem = re.sub(r"[^A-Za-z0-9._-]+", "-", directory.resolve().name) or "-"
        taken = {watched.shown.name for watched in self._watched.values()}
        names = (stem, *(f"{stem}-{number}" for number in range(2, len(taken) + 3)))
        return next(name for name in names if name not in taken)
