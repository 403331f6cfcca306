"""Which directories are shown, each read once for all viewers and only while somebody looks."""

from __future__ import annotations

import json
import os
import re
import threading
import time
import traceback
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
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
class Part:
    """A JSON text, and the version of the reading in which it last changed."""

    text: str
    version: int


class Shown:
    """A directory as viewers see it, with its last reading, kept while it cannot be read.

    Attributes:
        name: its name in addresses
        html: the directory as HTML
        parts: ``html`` and the specification of each figure
    """

    def __init__(self, name: str, directory: Path) -> None:
        self.name, self.directory = name, directory
        self.html = ""
        self.parts: Mapping[str, Part] = {}
        self._inode = 0
        self._reader = Reader(directory)
        self._reading: Reading | None = None
        self._problem = ""

    def read(self, version: int) -> None:
        """Read it again, for the reading ``version`` of all directories."""
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
        self.html = render_directory(self.name, self.directory, self._reading, self._problem)
        figures = self._reading.figures if self._reading else {}
        parts: dict[str, Part] = {}
        for name, value in {"html": self.html, **figures}.items():
            part, old = Part(json.dumps(value, allow_nan=False), version), self.parts.get(name)
            parts[name] = old if old and old.text == part.text else part
        self.parts = parts

    def _read(self) -> None:
        inode = self.directory.stat().st_ino
        if inode != self._inode:  # another table has taken its place: nothing read before holds
            self._inode, self._reader = inode, Reader(self.directory)
        self._reading = self._reader.read()


class Directories:
    """The directories below ``roots``, also those that appear later.

    Args:
        roots: tables, searches, or folders of them
        interval: seconds between two readings, or more if a reading takes long
    """

    def __init__(self, roots: Sequence[Path], interval: float = INTERVAL_SECONDS) -> None:
        self.roots, self.interval = tuple(roots), interval
        self._shown: dict[Path, Shown] = {}
        self._lock = threading.Lock()
        self._next = 0.0
        # Later than all versions of a server that ran before, whose pages may still be open.
        self._version = int(1_000 * time.time())

    def read(self, name: str | None = None) -> tuple[int, tuple[Shown, ...]]:
        """All of them, or that of a name, as they were at most an interval ago, and the version of
        that reading.
        """
        with self._lock:
            if time.monotonic() >= self._next:
                began = time.monotonic()
                self._version += 1
                self._read()
                took = time.monotonic() - began
                longest = _MOST_INTERVALS * self.interval
                self._next = began + max(self.interval, min(longest, _PATIENCE * took))
            found = tuple(x for x in self._shown.values() if name in (None, x.name))
            return self._version, found

    def _read(self) -> None:
        for root in self.roots:
            for directory in find_directories(root):
                if directory not in self._shown:
                    self._shown[directory] = Shown(self._name(directory), directory)
        for shown in self._shown.values():
            shown.read(self._version)

    def _name(self, directory: Path) -> str:
        """The directory's own name as an address can hold it, with a number if it is taken."""
        stem = re.sub(r"[^A-Za-z0-9._-]+", "-", directory.resolve().name) or "-"
        taken = {shown.name for shown in self._shown.values()}
        names = (stem, *(f"{stem}-{number}" for number in range(2, len(taken) + 3)))
        return next(name for name in names if name not in taken)
