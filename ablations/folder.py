"""Read a table, a search or Table 1.

Example:
    >>> for run in open_folder("runs/table3-small").runs():
    ...     print(run.row, run.seed, run.result and run.result.bleu)
"""

from __future__ import annotations

import os
import warnings
from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping, Sequence, Set
from contextlib import suppress
from dataclasses import replace
from functools import cached_property
from pathlib import Path

from ablations.collect import add_runs
from ablations.files import CONFIRM, LAYERS_FILE, PLAN_FILE, REPLACED, SEARCH_FILE, check_free
from ablations.search.search import claim_search, load_search
from ablations.search.trials import Trial, make_trial, ranked
from ablations.tables.changes import Value, columns
from ablations.tables.measurements import load_measurements
from ablations.tables.plan import (
    Plan,
    claim_plan,
    load_plan,
    settle_plan,
    with_current_sources,
)
from ablations.tables.table import Cell
from ablations.tables.table1 import TITLE
from ablations.tables.trainings import Training
from experiments.records.checksums import copied_files
from experiments.records.collection import Collection
from experiments.records.line import RUNS_FILE
from experiments.records.outputs import COLUMNS
from experiments.records.ownership import changed_settings
from experiments.records.progress import RunState
from experiments.records.result import RESULT_FILE
from experiments.records.run import Run, attempt_number, locate, read_run
from transformer.config import Config, override
from transformer.errors import InputError
from transformer.files import copy_plain, make_directory, making, within

# A value for each column, such as a row of a DataFrame.
Record = dict[str, Value]
# The figures of a result in records and in results.csv.
FIGURES = (
    *("seed", "perplexity", "bleu", "tokenised_bleu", "test_perplexity", "test_bleu", "f1"),
    *("test_f1", "parameters", "steps", "target_tokens", "flops", "train_seconds"),
    *("tokens_per_second", "device", "precision", "commit"),
)


class Folder(ABC):
    """What a folder holds: a ``plan`` and its runs by ``names``, begun or not, in its order.

    A run has a folder of its own or is a line of ``runs.jsonl``, which ``collect`` writes.

    ``labels`` are the kind of the plan with its name, and its scale; ``configs`` are those of
    rows by name, of a search the base's under an empty name; ``parameters`` are a search's, and
    ``trainings`` those of a table's rows.
    """

    path: Path
    title: str
    names: tuple[str, ...]
    labels: Mapping[str, str]
    parameters: Sequence[str] = ()
    trainings: Sequence[Training] = ()
    configs: Mapping[str, Config]

    def read(self, name: str) -> Run:
        """The run of this name now, unchecked."""
        return self._read(name, has_folder=locate(within(self.path, name)).exists())

    def _read(self, name: str, *, has_folder: bool) -> Run:
        if has_folder:
            return read_run(within(self.path, name), name)
        if name in self.collection.lines:
            return self.collection.run(name)
        return Run(name=name, directory=self.path / name)

    @cached_property
    def collection(self) -> Collection:
        """The runs that are lines."""
        return collection_of(self.path)

    def look(self, ended: dict[str, Run] | None = None) -> list[Run]:
        """All runs now, unchecked.

        Args:
            ended: those that had ended at an earlier look, which are not read again; new ones are
                added
        """
        ended, begun = {} if ended is None else ended, self._begun()
        runs: list[Run] = []
        for name in self.names:
            run = ended.get(name) or self._read(name, has_folder=name in begun)
            if name not in ended and run.has_ended and run.state != RunState.STALE:
                ended[name] = run
            runs.append(run)
        return runs

    def _begun(self) -> set[str]:
        """The runs that have a directory, found by one listing of each folder."""
        folders = {name.rpartition("/")[:2] for name in self.names}
        return {
            f"{row}{slash}{entry.partition('.attempt-')[0]}"
            for row, slash in folders
            if (self.path / row).is_dir()
            for entry in os.listdir(self.path / row)  # noqa: PTH208 (of many thousand runs)
        }

    def runs(self) -> list[Run]:
        """All runs; one whose files changed, or are of another configuration, has no result."""
        begun = self._begun()
        return [self._checked(self._read(x, has_folder=x in begun)) for x in self.names]

    def _checked(self, run: Run) -> Run:
        try:
            self._check(run)
        except InputError as error:
            state = RunState.DONE if run.state == RunState.STALE else run.state
            return replace(run, state=state, result=None, pruned=None, problem=str(error))
        return run

    def _check(self, run: Run) -> None:
        """Check that the files of a finished run are unchanged, and what the plan asks for."""
        if run.result is not None or run.state == RunState.STALE:
            run.check()

    @property
    def left(self) -> list[str]:
        """The runs that have not ended."""
        return [run.name for run in self.look() if not run.has_ended]

    def collect(self, into: Path) -> list[str]:
        """Add what has ended to the folder ``into``, as lines of ``runs.jsonl`` with an archive.

        One that failed, or whose files changed, is left out with a warning.

        Returns:
            The names of the runs that were not begun there.
        """
        return add_runs(into, self._share(into))

    @abstractmethod
    def _share(self, into: Path) -> dict[str, Run]:
        """Write the plan into another folder, or add to that there; the runs that ended and that
        are not begun there, by their names below it.
        """

    def without_begun(self, runs: Mapping[str, Run]) -> dict[str, Run]:
        """The ``runs``, by their names here, that are not begun here."""
        begun = self._begun() | self.collection.lines.keys()
        return {name: run for name, run in runs.items() if name not in begun}

    def verify(self) -> Iterator[tuple[Path, str]]:
        """Each file of the finished runs, and what is wrong with it; empty if nothing is."""
        seen = set[Path]()  # runs may share a file
        for part in self.parts:
            for name in part.names:
                for path, problem in part.read(name).verify():
                    if path not in seen:
                        seen.add(path)
                        yield path, problem

    @property
    def parts(self) -> list[Folder]:
        """Itself and, of a search, the table that trains its best trials again."""
        return [self]

    def records(self) -> list[Record]:
        """A flat record for each run: what it is, its settings and its figures, None where it has
        none yet.
        """
        return [self.record(run) for run in self.runs()]

    def record(self, run: Run) -> Record:
        """The record of a run; of a pruned one the figures are of where that was."""
        figures = {name: getattr(run.result, name, None) for name in FIGURES}
        if run.pruned is not None:
            figures |= {"perplexity": run.pruned.perplexity, "steps": run.pruned.step}
        who, state = self._who(run), {"state": str(run.state)}
        return {**who, **self._settings(run), **state, **figures, **who}

    def _who(self, run: Run) -> Record:
        return {"row": run.row, "seed": run.seed}

    def _settings(self, run: Run) -> Record:
        """What makes a run differ from others."""
        return {}

    def curves(self) -> list[Record]:
        """A flat record for each run and step that it logged, with the columns of metrics.csv."""
        return [
            {**self._who(run), **dict.fromkeys(COLUMNS), **line}
            for run in self.look()
            for line in run.metrics
        ]


class TableFolder(Folder):
    """The rows of a table with their seeds.

    Args:
        plan: in place of the one in the folder

    The classes of rows are taken as they are now, where their source is known here.
    """

    def __init__(self, path: Path, plan: Plan | None = None) -> None:
        self.path, self.plan = path, with_current_sources(plan or load_plan(path))
        self.cells: Mapping[str, Cell] = {str(cell): cell for cell in self.plan.cells}
        self.names = tuple(self.cells)
        self.title = f"{self.plan.table} at scale {self.plan.scale}"
        self.labels = {"table": self.plan.table, "scale": self.plan.scale}
        self.configs, self.trainings = self.plan.configs, self.plan.trainings

    def only(self, rows: Set[str]) -> TableFolder:
        """The same with no other rows than these."""
        kept = tuple(row for row in self.plan.rows if row.name in rows)
        return TableFolder(self.path, replace(self.plan, rows=kept))

    def config(self, name: str) -> Config:
        """The configuration of a run, by its name, as it is planned now."""
        cell = self.cells[name]
        return override(self.configs[cell.row], seed=cell.seed)

    def _read(self, name: str, *, has_folder: bool) -> Run:
        """A run that ended is stale if it is not as planned now; one that did not end, and has no
        process, waits, as it is begun anew.
        """
        run = super()._read(name, has_folder=has_folder)
        if run.state in (RunState.WAITING, RunState.RUNNING):
            return run
        changes = self._changes(run)
        if not changes:
            return run
        if run.result is None or not run.is_published:
            return Run(name=name, directory=run.directory)
        return replace(run, state=RunState.STALE, result=None, problem="; ".join(changes))

    def _changes(self, run: Run) -> list[str]:
        """How the settings of a run differ from those planned now."""
        with suppress(InputError):  # a damaged file is named elsewhere
            if run.experiment is not None:
                return changed_settings(run.experiment.config, self.config(run.name))
        return []

    def _check(self, run: Run) -> None:
        super()._check(run)
        if (found := run.result) is None:
            return
        # A copy, or a run of a row that was renamed, keeps the name that it was trained under.
        own = run.experiment or self.plan.experiment(self.cells[run.name])
        if (found.experiment, found.seed) != (own.name, run.seed):
            path = run.directory / RESULT_FILE
            raise InputError(f"{path} is of {found.experiment}, seed {found.seed}")

    def _share(self, into: Path) -> dict[str, Run]:
        check_free(into, PLAN_FILE)
        published = [run for run in self.runs() if run.is_published]
        for run in published:
            if run.problem:
                is_stale = run.state == RunState.STALE
                why = f"{run.name} is stale ({run.problem})" if is_stale else run.problem
                warnings.warn(f"left out: {why}", stacklevel=3)
        finished = {run.name: run for run in published if run.result is not None}
        plan = _with_seeds(self.plan, {self.cells[name] for name in finished})
        if (into / PLAN_FILE).exists():  # which may have more rows
            ours = {row.name: row for row in plan.rows}
            there = {row.name: row for row in load_plan(into).rows}
            plan = replace(plan, rows=tuple((there | ours).values()))
            _refuse_stale(into, settle_plan(into, plan), finished.keys())
        claim_plan(into, plan)
        there = TableFolder(into)
        stale = {run.name for run in there.look() if run.state == RunState.STALE}
        new = there.without_begun(finished)
        return new | {name: finished[name] for name in stale & finished.keys()}

    @property
    def unplanned(self) -> list[str]:
        """The finished runs in the folder that the plan does not list."""
        found = (path.parent for path in sorted(self.path.glob(f"*/seed-*/{RESULT_FILE}")))
        names = [x.relative_to(self.path).as_posix() for x in found if not attempt_number(x)]
        planned = {str(cell) for cell in load_plan(self.path).cells}
        others = [name for name in (*names, *self.collection.lines) if name not in planned]
        return [name for name in others if not name.startswith(f"{REPLACED}/")]

    @property
    def finished_at(self) -> float:
        """When the last run finished here, or was copied here, in seconds since the epoch; 0 if
        none has.
        """
        files = [*self.path.glob(f"*/*/{RESULT_FILE}"), *self.path.glob(RUNS_FILE)]
        return max((path.stat().st_mtime for path in files), default=0.0)

    def _settings(self, run: Run) -> Record:
        return self.settings[run.row]

    @cached_property
    def settings(self) -> Mapping[str, Record]:
        """The settings of each row that the table shows."""
        shown, found = self.plan.shown, {x: columns(y) for x, y in self.configs.items()}
        return {row: {name: each.get(name) for name in shown} for row, each in found.items()}


def _refuse_stale(into: Path, plan: Plan, ours: Set[str]) -> None:
    """Check that by this plan no run in the folder becomes stale that none of ours replaces."""
    before = {run.name for run in TableFolder(into).look() if run.state == RunState.STALE}
    for run in TableFolder(into, plan).look():
        if run.state == RunState.STALE and run.name not in before | ours:
            raise InputError(
                f"{run.directory} has other settings ({run.problem}), and no run replaces it: "
                "choose another directory"
            )


def _with_seeds(plan: Plan, cells: Set[Cell]) -> Plan:
    """The plan with no other runs than these."""
    rows = (
        replace(row, seeds=tuple(x for x in row.seeds if Cell(row.name, x) in cells))
        for row in plan.rows
    )
    return replace(plan, rows=tuple(rows))


class SearchFolder(Folder):
    """The trials of a search; the best, trained again with other seeds, are a table within."""

    def __init__(self, path: Path) -> None:
        self.path, self.plan = path, load_search(path)
        self.names = self.plan.names
        self.title = f"search {self.plan.space} at scale {self.plan.scale}"
        self.labels = {"search": self.plan.space, "scale": self.plan.scale}
        self.configs = {"": self.plan.base}
        self.parameters = [each.name for each in self.plan.parameters]

    def trial(self, name: str) -> Trial:
        """A trial as its newest attempt left it; failed if a file of it cannot be used."""
        run = self.read(name)
        try:
            self._check(run)
            return make_trial(self.plan, run)
        except (InputError, OSError) as error:
            return Trial(name=name, state=RunState.FAILED, reason=f"left out: {error}")

    def trials(self) -> tuple[Trial, ...]:
        """All trials, begun or not."""
        return tuple(map(self.trial, self.names))

    @property
    def parts(self) -> list[Folder]:
        return [self] if self.confirmation is None else [self, self.confirmation]

    @property
    def confirmation(self) -> TableFolder | None:
        """The table that trains the best trials again, if it was asked for."""
        path = within(self.path, CONFIRM)
        return TableFolder(path) if (path / PLAN_FILE).is_file() else None

    def _check(self, run: Run) -> None:
        if run.experiment is None:
            return
        if not self.plan.contains(run.experiment.config):
            raise InputError(f"{run.directory} is not a trial of this search")
        super()._check(run)

    def _share(self, into: Path) -> dict[str, Run]:
        check_free(into, SEARCH_FILE)
        claim_search(into, self.plan)
        trials = self.trials()
        for trial in trials:
            if trial.state == RunState.FAILED:
                warnings.warn(f"{trial.name}: {trial.reason}", stacklevel=3)
        runs = {trial.name: self.read(trial.name) for trial in ranked(trials)}
        # One that is just being ended still has the name of its attempt.
        ended = {name: run for name, run in runs.items() if run.is_published}
        found = SearchFolder(into).without_begun(ended)
        if (again := self.confirmation) is not None:
            confirming = again._share(into / CONFIRM)
            found |= {f"{CONFIRM}/{name}": run for name, run in confirming.items()}
        return found

    def _who(self, run: Run) -> Record:
        return {"trial": run.name}

    def _settings(self, run: Run) -> Record:
        values = {} if run.experiment is None else self.plan.values(run.experiment.config)
        return {name: values.get(name) for name in self.parameters}


def copy_run(run: Run, target: Path) -> None:
    """Copy a run without its checkpoints; the target is complete or does not exist."""
    with making(target) as part:
        part.mkdir(parents=True)
        for path in copied_files(run.files):
            copy_plain(path, part / path.name)


class LayersFolder(Folder):
    """The measurements of Table 1, which has no runs: its records are of layers at each size."""

    def __init__(self, path: Path) -> None:
        self.path, self.plan = path, load_measurements(path)
        self.names, self.title = (), TITLE
        self.labels, self.configs = {"table": "table1"}, {}

    @property
    def left(self) -> list[str]:
        """The sizes that are not measured yet."""
        return [f"d={d}, n={n}" for d, n in self.plan.lacking()]

    def _share(self, into: Path) -> dict[str, Run]:
        check_free(into, LAYERS_FILE)
        make_directory(into)
        self.plan.save(into)  # all measurements, in place of those there
        return {}

    def records(self) -> list[Record]:
        """A flat record for each layer at each size."""
        return self.plan.records()


def collection_of(path: Path) -> Collection:
    """The runs of a folder that are lines; those of the table in a search's folder are lines of the
    search.
    """
    if path.name == CONFIRM and (path.parent / RUNS_FILE).is_file():
        return Collection(path.parent, below=f"{CONFIRM}/")
    return Collection(path)


def open_folder(path: Path | str) -> TableFolder | SearchFolder | LayersFolder:
    """The folder of a table, a search or Table 1.

    Raises:
        InputError: if it is none, or its plan cannot be read.
    """
    if (Path(path) / LAYERS_FILE).is_file():
        return LayersFolder(Path(path))
    return open_runs(Path(path))


def open_runs(path: Path) -> TableFolder | SearchFolder:
    """The folder of a table or a search, which have runs."""
    return SearchFolder(path) if (path / SEARCH_FILE).is_file() else TableFolder(path)
