"""Reuse equal runs, and set stale ones aside."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from contextlib import nullcontext, suppress
from pathlib import Path

from ablations.collect import rename_runs
from ablations.files import REPLACED, TUNING
from ablations.folder import TableFolder
from ablations.folder.base import copy_run
from ablations.runs.attempts import is_elsewhere, next_replaced
from ablations.tables.plan import Plan
from ablations.tables.plan_file import LOCK_FILE, claim_plan
from ablations.tables.table import Cell
from experiments.records.experiment import CONFIG_FILE
from experiments.records.ownership import changed_settings, identity
from experiments.records.progress import RunState
from experiments.records.run import Run, locate, read_run
from experiments.records.source import has_changed
from transformer.config import override
from transformer.errors import InputError
from transformer.files import locked, rename, within


def find_equal(plan: Plan, runs: Iterable[Run]) -> dict[Cell, Run]:
    """The runs that equal a run of ``plan`` (row and seed), whatever their names."""
    planned = {row: identity(override(config, seed=0)) for row, config in plan.configs.items()}
    equal: dict[Cell, Run] = {}
    for run in runs:
        with suppress(InputError):  # a damaged file
            if run.experiment is None:
                continue
            config = run.experiment.config
            settings = identity(override(config, seed=0))
            for row, wanted in planned.items():
                cell = Cell(row, config.training.seed)
                if wanted == settings and (cell not in equal or run.row == row):
                    equal[cell] = run
    return equal


class Earlier:
    """The finished runs in the folder ``path`` that equal runs of ``plan``.

    Args:
        all_seeds: also take seeds that the plan does not have

    Raises:
        InputError: if the folder has finished runs, but none of them equals one of the plan.
    """

    def __init__(self, path: Path, plan: Plan, *, all_seeds: bool = True) -> None:
        self.path = path
        finished = [run for run in TableFolder(path).runs() if run.result is not None]
        self._equal = find_equal(plan, finished)
        if finished and not self._equal:
            raise InputError(f"{path} has no run of this table: {_difference(plan, finished[0])}")
        if not all_seeds:
            self._equal = {cell: self._equal[cell] for cell in plan.cells if cell in self._equal}

    def add_seeds(self, plan: Plan) -> Plan:
        """``plan`` with the seeds of these runs added."""
        return plan.with_cells((*plan.cells, *self._equal))

    def copy(self, root: Path) -> list[str]:
        """Copy these runs to a folder, except those that have begun there; return their names."""
        with locked(root / LOCK_FILE):  # shards copy the same runs
            runs = {str(cell): run for cell, run in self._equal.items()}
            missing = TableFolder(root).without_begun(runs)
            for name, run in missing.items():
                copy_run(run, within(root, name))
        return sorted(missing)


def _difference(plan: Plan, run: Run) -> str:
    """How a run differs from the row of the same name, or else from the first row."""
    configs = plan.configs
    config = configs.get(run.row, next(iter(configs.values())))
    if run.experiment is None:
        return f"{run.name} has no {CONFIG_FILE}"
    changes = changed_settings(run.experiment.config, override(config, seed=run.seed))
    return f"{run.name} has other settings ({'; '.join(changes)})"


def take_renamed(root: Path) -> int:
    """Rename the runs of renamed rows to match; return how many there are.

    A run that another driver works on stays where it is.
    """
    folder = TableFolder(root)
    left = {run.name: run for run in _unplanned(folder)}
    equal = find_equal(folder.plan, left.values())
    if not equal:
        return 0
    plan = folder.plan.with_cells((*folder.plan.cells, *equal))
    folder = TableFolder(root, claim_plan(root, plan))
    with locked(root / LOCK_FILE):
        runs = {str(cell): run for cell, run in equal.items()}
        names = {run.name: name for name, run in folder.without_begun(runs).items()}
        free = {old: new for old, new in names.items() if not is_elsewhere(within(root, old))}
        _rename(folder, free)
    return len(free)


def _unplanned(folder: TableFolder) -> Iterator[Run]:
    """The runs of rows that the plan does not have, ended or not."""
    paths = [path for path in sorted(folder.path.glob("*/seed-*")) if path.is_dir()]
    names = {f"{path.parent.name}/{path.name.partition('.attempt-')[0]}" for path in paths}
    lines = folder.collection.lines
    for name in sorted((names | lines.keys()) - {*folder.names}):
        if name.startswith((f"{REPLACED}/", f"{TUNING}/")):
            continue
        if name in names:  # a folder takes precedence over a line
            yield read_run(within(folder.path, name), name)
        else:
            yield folder.collection.run(name)


def _rename(folder: TableFolder, names: Mapping[str, str]) -> None:
    """Give runs other names (old: new), whether they have a folder, ended or not, or a line."""
    in_lines: dict[str, str] = {}
    for old, new in names.items():
        current = locate(within(folder.path, old))
        if current.exists():
            _move(current, within(folder.path, new + current.name.removeprefix(Path(old).name)))
        elif old in folder.collection.lines:
            in_lines[old] = new
    if not in_lines:
        return
    collection = folder.collection
    # The lines of a table inside another folder are the outer folder's.
    is_outer = collection.path != folder.path
    with locked(collection.path / LOCK_FILE) if is_outer else nullcontext():
        rename_runs(collection, in_lines)


def _move(directory: Path, target: Path) -> None:
    """Move a run's directory to the folder of another row."""
    target.parent.mkdir(parents=True, exist_ok=True)
    with suppress(FileNotFoundError):  # another shard was first
        rename(directory, target)
    with suppress(OSError):  # it has other runs
        directory.parent.rmdir()


def set_aside_stale(root: Path, rows: Iterable[str]) -> list[str]:
    """Move runs of these rows to ``replaced/`` if their settings or source have changed, so that
    they are trained again.

    A call after a kill moves the rest; runs that were trained in between are not stale.
    """
    rows = {*rows}
    with locked(root / LOCK_FILE):
        folder = TableFolder(root)
        stale = [
            run
            for run in folder.look()
            if run.row in rows
            and (run.state == RunState.STALE or (run.has_ended and has_changed(run)))
        ]
        names = {run.name: next_replaced(root, run.name, folder.collection.lines) for run in stale}
        _rename(folder, names)
    return [*names]
