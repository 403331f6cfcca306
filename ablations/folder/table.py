"""The folder of a table."""

from __future__ import annotations

import warnings
from collections.abc import Mapping, Set
from contextlib import suppress
from dataclasses import replace
from functools import cached_property
from pathlib import Path

from ablations.files import PLAN_FILE, REPLACED, TUNING, check_free
from ablations.folder.base import Folder, Record
from ablations.folder.tuning import Tuned, choose, with_chosen
from ablations.tables.changes import columns
from ablations.tables.plan import Plan
from ablations.tables.plan_file import (
    claim_plan,
    load_plan,
    settle_plan,
    with_current_sources,
    with_rows_there,
)
from ablations.tables.step_times import StepTimes, load_step_times
from ablations.tables.table import Cell
from experiments.records.line import RUNS_FILE
from experiments.records.ownership import changed_settings
from experiments.records.progress import RunState
from experiments.records.result import RESULT_FILE
from experiments.records.run import Run, attempt_number
from transformer.config import Config, override
from transformer.errors import InputError
from transformer.files import within


class TableFolder(Folder):
    """The runs of a table: its rows with their seeds.

    Rows have their classes as they are now, where the source is available.

    Args:
        plan: a plan to use in place of the folder's
    """

    def __init__(self, path: Path, plan: Plan | None = None) -> None:
        self.path, self.plan = path, with_current_sources(plan or load_plan(path))
        self.cells: Mapping[str, Cell] = {str(cell): cell for cell in self.plan.cells}
        self.names = tuple(self.cells)
        self.title = f"{self.plan.table} at scale {self.plan.scale}"
        self.labels = {"table": self.plan.table, "scale": self.plan.scale}
        self.configs, self.trainings = self.plan.configs, self.plan.trainings

    @property
    def tuning(self) -> TableFolder | None:
        """The table that tries the learning rates; None for a table that is not tuned."""
        path = within(self.path, TUNING)
        is_there = self.plan.tune is not None and (path / PLAN_FILE).is_file()
        return TableFolder(path) if is_there else None

    @property
    def parts(self) -> list[Folder]:
        return [self] if self.tuning is None else [self, self.tuning]

    @property
    def step_times(self) -> StepTimes | None:
        """The time of a training step of each row, if it was measured."""
        return load_step_times(self.path)

    @cached_property
    def tuned(self) -> Mapping[str, Tuned]:
        """The chosen learning rates by row; empty for a table that is not tuned."""
        return {} if self.tuning is None else choose(self.plan, self.tuning.runs())

    def only(self, rows: Set[str]) -> TableFolder:
        """The same table with only these rows."""
        kept = tuple(row for row in self.plan.rows if row.name in rows)
        return TableFolder(self.path, replace(self.plan, rows=kept))

    def config(self, name: str) -> Config:
        """The configuration of a run, by its name, as currently planned."""
        cell = self.cells[name]
        return override(self.configs[cell.row], seed=cell.seed)

    def _read(self, name: str, *, has_folder: bool) -> Run:
        """A run that differs from what is planned now is stale if it has ended; if it has not, and
        has no process, it counts as waiting, since it will be trained from the start.
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
        """How a run's settings differ from those planned now."""
        with suppress(InputError):  # a damaged file is reported elsewhere
            if run.experiment is not None:
                return changed_settings(run.experiment.config, self.config(run.name))
        return []

    def _check(self, run: Run) -> None:
        super()._check(run)
        if (found := run.result) is None:
            return
        # A copied run, or one of a renamed row, keeps the name under which it was trained.
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
        plan = self.plan.with_cells(self.cells[name] for name in finished)
        plan = with_rows_there(into, plan)
        if (into / PLAN_FILE).exists():
            _refuse_stale(into, settle_plan(into, plan), finished.keys())
        claim_plan(into, plan)
        if self.step_times is not None:
            self.step_times.save(into)
        there = TableFolder(into)
        stale = {run.name for run in there.look() if run.state == RunState.STALE}
        new = there.without_begun(finished)
        found = new | {name: finished[name] for name in stale & finished.keys()}
        if self.tuning is not None:
            tried = self.tuning._share(within(into, TUNING))
            found |= {f"{TUNING}/{name}": run for name, run in tried.items()}
        return found

    def commit(self, name: str) -> str:
        """The commit of an ended run, stale or not."""
        result = super()._read(name, has_folder=name in self._begun()).result
        return "" if result is None else result.commit

    @property
    def unplanned(self) -> list[str]:
        """Names of finished runs in the folder that the plan does not list."""
        results = sorted(self.path.glob(f"*/seed-*/{RESULT_FILE}"))
        runs = [path.parent for path in results if not attempt_number(path.parent)]
        names = [run.relative_to(self.path).as_posix() for run in runs]
        planned = {str(cell) for cell in load_plan(self.path).cells}
        others = [name for name in (*names, *self.collection.lines) if name not in planned]
        return [name for name in others if not name.startswith((f"{REPLACED}/", f"{TUNING}/"))]

    @property
    def finished_at(self) -> float:
        """When the last run finished here or was copied here, in seconds since the epoch; 0 if
        there is none.
        """
        files = [*self.path.glob(f"*/*/{RESULT_FILE}"), *self.path.glob(RUNS_FILE)]
        return max((path.stat().st_mtime for path in files), default=0.0)

    def record(self, run: Run) -> Record:
        scores: Record = {}
        for own in self.plan.own_measures:
            scores[own.name] = None if run.result is None else own.measure.of(run.result)
        return {**super().record(run), **scores}

    def _settings(self, run: Run) -> Record:
        return self.settings[run.row]

    @cached_property
    def settings(self) -> Mapping[str, Record]:
        """The settings of each row that the table shows."""
        found: dict[str, Record] = {}
        for row, config in self.configs.items():
            of_row = columns(config)
            found[row] = {name: of_row.get(name) for name in self.plan.shown}
        return found


def tuned_plan(plan: Plan, root: Path) -> Plan:
    """A tuned table's plan, with the learning rates chosen by the runs in its folder ``root``."""
    tuning = within(root, TUNING)
    if not (tuning / PLAN_FILE).is_file():
        return plan
    folder = TableFolder(tuning)
    shared = folder.plan.base.training
    base = override(plan.base, precision=shared.precision, threads=shared.threads)
    return with_chosen(replace(plan, base=base), choose(plan, folder.runs()))


def _refuse_stale(into: Path, plan: Plan, ours: Set[str]) -> None:
    """Check that ``plan`` makes no run in the folder stale unless one of ``ours`` replaces it."""
    before = {run.name for run in TableFolder(into).look() if run.state == RunState.STALE}
    for run in TableFolder(into, plan).look():
        if run.state == RunState.STALE and run.name not in before | ours:
            raise InputError(
                f"{run.directory} has other settings ({run.problem}), and no run replaces it: "
                "choose another directory"
            )
