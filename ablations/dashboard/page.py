"""The dashboard's page, made from the files of directories."""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from urllib.parse import quote

from ablations.figures.curves import curve_of, draw_curves
from ablations.figures.panels import MOST_RUNS, Look, draw_panels, looks_of
from ablations.files import CONFIRM, HTML_FILE, PLAN_FILE, SEARCH_FILE, TUNING
from ablations.folder import SearchFolder, open_runs
from ablations.report.layout import render
from ablations.report.search import describe_trial, shares_of_importance
from ablations.report.search_figures import draw_search
from ablations.search.trials import best
from ablations.status import view
from ablations.status.status import DirectoryReader, Status
from ablations.tables.plan import Plan
from ablations.tables.table import Cell
from experiments.figures.style import Spec
from experiments.records.experiment import CONFIG_FILE
from experiments.records.progress import RunState
from experiments.records.run import Run
from transformer.errors import InputError
from transformer.files import read_bytes

TEMPLATES = Path(__file__).parent / "templates"
INTERVAL_SECONDS = 2.0  # dashboard.js polls as often
_DEPTH = 3  # of folders below a root that are searched
_MOST_BYTES = 256_000_000  # of a report


def find_directories(root: Path) -> Iterator[Path]:
    """``root`` if it is the directory of a table or a search, else all such directories below it.

    A search is followed by the table that trains its best trials again, a tuned table by the one
    that tries its learning rates.
    """
    for folder, names, files in os.walk(root, followlinks=True):
        depth = len(Path(folder).relative_to(root).parts)
        if PLAN_FILE in files or SEARCH_FILE in files:
            yield Path(folder)
            names[:] = [name for name in names if name in (CONFIRM, TUNING)]
        elif CONFIG_FILE in files or depth == _DEPTH:
            names.clear()  # a run's folder has no table or search below it
        names[:] = sorted(name for name in names if not name.startswith("."))


@dataclass(frozen=True, slots=True)
class Reading:
    """The state of a directory at one moment.

    ``panels`` show what the runs of ``looks`` logged, those in progress first. ``figures`` show all
    runs: the learning curves of a table, or the plots of a search. ``grid`` has a table's rows,
    each with its run for each of the ``seeds``, None where there is no such run; both are empty for
    a search. ``best`` describes the best trial of a search.
    """

    status: Status
    panels: Mapping[str, Spec]
    looks: Sequence[Look]
    figures: Mapping[str, Spec]
    seeds: Sequence[int] = ()
    grid: Sequence[tuple[str, Sequence[Run | None]]] = ()
    best: str = ""

    @property
    def is_in_progress(self) -> bool:
        """Whether a driver or a run is working."""
        return self.status.is_driven or any(run.is_live for run in self.status.runs)

    @property
    def left_out(self) -> int:
        """The number of begun runs that the panels do not show."""
        return max(0, len(_begun(self.status)) - MOST_RUNS)


class Reader:
    """Reads a directory repeatedly; files that have not changed are read only once."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self._status = DirectoryReader(directory)
        self._logged: Sequence[tuple[str, int, int]] = ()  # what the panels were drawn from
        self._panels: Mapping[str, Spec] = {}
        self._counts: Mapping[RunState, int] = {}  # of trials when the search was drawn
        self._figures: Mapping[str, Spec] = {}
        self._best = ""

    def read(self) -> Reading:
        """The directory now.

        Raises:
            InputError: if it is not a table's or a search's, or a file cannot be read.
        """
        status, folder = self._status.read(), open_runs(self._directory)
        shown = list(islice((run for run in _begun(status) if run.metrics), MOST_RUNS))
        logged = [(run.name, len(run.metrics), len(run.speeds)) for run in shown]
        if self._logged != logged:  # panels change when a run logs
            self._panels, self._logged = draw_panels(shown), logged
        panels, looks = self._panels, looks_of(shown)
        if isinstance(folder, SearchFolder):
            if self._counts != status.counts:  # figures change when a trial ends
                self._figures, self._best = _draw_search(folder)
                self._counts = status.counts
            return Reading(status, panels, looks, self._figures, best=self._best)
        plan = folder.plan
        seeds = sorted({cell.seed for cell in plan.cells})
        runs = {run.name: run for run in status.runs}
        grid: list[tuple[str, list[Run | None]]] = []
        for row in plan.rows:
            if row.seeds:
                grid.append((row.name, [runs.get(str(Cell(row.name, seed))) for seed in seeds]))
        return Reading(status, panels, looks, _draw_table(plan, status.runs), seeds, grid)


def _begun(status: Status) -> list[Run]:
    """The runs that have begun, those in progress first."""
    not_begun = (RunState.WAITING, RunState.STALE)
    return [run for run in view.in_order(status.runs) if run.state not in not_begun]


def _draw_table(plan: Plan, runs: Sequence[Run]) -> Mapping[str, Spec]:
    """The learning curves of a table."""
    base = next((row.name for row in plan.rows if row.is_base), None)
    spec = draw_curves([curve_of(run) for run in runs], base, by_name=plan.is_compared)
    return {} if spec is None else {"curves": spec}


def _draw_search(folder: SearchFolder) -> tuple[Mapping[str, Spec], str]:
    """The plots of a search, and its best trial in words."""
    search, trials = folder.plan, folder.trials()
    figures = draw_search(search, trials, shares_of_importance(search, trials))
    return figures, describe_trial(search, best(trials))


class Page:
    """The page of the tables and searches below ``roots``, including those that appear later.

    Args:
        roots: directories of tables or searches, or folders of them
        interval: seconds between two readings, which all viewers share
    """

    def __init__(self, roots: Sequence[Path], interval: float = INTERVAL_SECONDS) -> None:
        self._roots, self._interval = tuple(roots), interval
        self._readers: dict[Path, Reader] = {}
        self._html, self._next = "", 0.0
        self._lock = threading.Lock()

    def html(self) -> str:
        """The page as it was at most an interval ago."""
        with self._lock:
            if time.monotonic() >= self._next:
                self._html = self._render()
                self._next = time.monotonic() + self._interval
            return self._html

    def report(self, directory: Path) -> bytes | None:
        """The last report in ``directory``; None if there is none or it is not of this page."""
        if directory not in map(Path.resolve, self._find()):
            return None
        try:
            return read_bytes(directory / HTML_FILE, _MOST_BYTES)
        except (InputError, OSError):
            return None

    def _find(self) -> list[Path]:
        return [directory for root in self._roots for directory in find_directories(root)]

    def _render(self) -> str:
        known, self._readers = self._readers, {}
        for directory in self._find():
            self._readers[directory] = known.get(directory) or Reader(directory)
        sections = [_read_section(path, reader) for path, reader in self._readers.items()]
        sections.sort(key=_is_idle)
        return render(
            TEMPLATES / "page.html.j2",
            layout="html.j2",
            sections=sections,
            roots=", ".join(map(str, self._roots)),
            view=view,
        )


@dataclass(frozen=True, slots=True)
class _Section:
    """A directory on the page: the path of its report, and its reading or why there is none."""

    directory: Path
    report: str
    reading: Reading | None = None
    problem: str = ""


def _is_idle(section: _Section) -> bool:
    return section.reading is None or not section.reading.is_in_progress


def _read_section(directory: Path, reader: Reader) -> _Section:
    report = quote(bytes(directory.resolve())) if (directory / HTML_FILE).is_file() else ""
    try:
        return _Section(directory, report, reading=reader.read())
    except (InputError, OSError) as error:
        return _Section(directory, report, problem=str(error))
