"""Directories of the dashboard, each read once for all viewers."""

from __future__ import annotations

import json
import os
import re
import threading
import time
import traceback
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

from ablations.dashboard.reading import Reader, Reading
from ablations.files import HTML_FILE, PLAN_FILE, SEARCH_FILE, STUDY_FILE
from ablations.report.layout import render
from ablations.status.model import ENDED
from ablations.status.view import as_text, describe_counts, describe_time, in_order
from experiments.records.experiment import CONFIG_FILE
from experiments.records.progress import RunState
from experiments.records.result import MEASURES
from transformer.errors import InputError

TEMPLATES = Path(__file__).parent / "templates"
INTERVAL_SECONDS = 2.0
# Where a reading takes long, as many times as long is waited for the next, up to so many intervals.
_PATIENCE, _MOST_INTERVALS = 10, 5
_DEPTH = 3
# Shown with all their figures; the others are only in the grid or counted.
_UNFINISHED = (RunState.RUNNING, RunState.FAILED, RunState.GIVEN_UP, RunState.STOPPED)


def find_directories(root: Path) -> Iterator[Path]:
    """``root`` if it is a table's or a search's directory, else those below it."""
    for folder, names, files in os.walk(root):
        depth = len(Path(folder).relative_to(root).parts)
        if PLAN_FILE in files or SEARCH_FILE in files:
            yield Path(folder)
            names.clear()
        elif CONFIG_FILE in files or depth == _DEPTH:
            names.clear()  # a single run has many files, but none of ours
        names[:] = sorted(name for name in names if not name.startswith("."))


class Part(NamedTuple):
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
        self.parts: dict[str, Part] = {}
        self._inode = 0
        self._reader = Reader(directory)
        self._reading: Reading | None = None
        self._problem = ""

    def read(self, version: int) -> None:
        """Read it again, for the reading ``version`` of all directories."""
        try:
            inode = self.directory.stat().st_ino
            if inode != self._inode:  # another table has taken its place: nothing of it is known
                self._inode, self._reader = inode, Reader(self.directory)
            self._reading, self._problem = self._reader.read(), ""
        except Exception as error:  # must not take the other directories away
            problem = str(error)
            if not isinstance(error, InputError | OSError):
                problem = f"{type(error).__name__}: {error}"
                if problem != self._problem:
                    traceback.print_exc()
            self._problem = problem
        self.html = self._render()
        figures = self._reading.figures if self._reading else {}
        old, self.parts = self.parts, {}
        for name, value in {"html": self.html, **figures}.items():
            part = Part(json.dumps(value, allow_nan=False), version)
            same = name in old and old[name].text == part.text
            self.parts[name] = old[name] if same else part

    def _render(self) -> str:
        values: dict[str, object] = {}
        if self._reading is not None:
            status = self._reading.status
            values = {
                "status": status,
                "counts": describe_counts(status),
                "time": describe_time(status),
                "ended": sum(run.state in ENDED for run in status.runs),
                "runs": [as_text(x) for x in in_order(status.runs) if x.state in _UNFINISHED],
                "report": (self.directory / HTML_FILE).is_file(),
                "study": self.directory / STUDY_FILE,
                "as_text": as_text,
                "measures": MEASURES,
            }
        return render(
            TEMPLATES / "directory.html.j2",
            layout="html.j2",
            name=self.name,
            directory=self.directory,
            reading=self._reading,
            problem=self._problem,
            **values,
        )


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

    def read(self, name: str | None = None) -> tuple[int, list[Shown]]:
        """All of them, or that of a name, as they were at most an interval ago, and the version of
        that reading.
        """
        with self._lock:
            if (began := time.monotonic()) >= self._next:
                self._version += 1
                self._read()
                wait = min(_PATIENCE * (time.monotonic() - began), _MOST_INTERVALS * self.interval)
                self._next = began + max(self.interval, wait)
            return self._version, [x for x in self._shown.values() if name in (None, x.name)]

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
