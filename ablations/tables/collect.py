"""Copy finished runs without their checkpoints.

A copy has a few hundred kilobytes per run: enough for a report, and for a later run to add to.
"""

from __future__ import annotations

import shutil
import warnings
from dataclasses import replace
from pathlib import Path

from ablations.files import PLAN_FILE, check_free
from ablations.runs.attempts import PRUNED_FILE, locate
from ablations.tables.plan import LOCK_FILE, Plan, claim_plan, load_plan
from ablations.tables.table import Cell
from experiments.records.checksums import RECORDS, SUMS_FILE, check_unchanged
from experiments.records.ownership import check_configuration
from experiments.records.result import RESULT_FILE, Result, load_result
from transformer.errors import InputError
from transformer.files import locked, making


def copy_finished(source: Path, target: Path) -> list[Cell]:
    """Copy the finished runs of ``source`` that ``target`` has not begun; returns them.

    A run that a report would leave out is left out here too, with a warning.
    """
    plan = load_plan(source)
    check_free(target, PLAN_FILE)
    finished: set[Cell] = set()
    for cell in plan.cells:
        try:
            if finished_result(plan, cell, cell.directory(source)) is not None:
                finished.add(cell)
        except InputError as error:
            warnings.warn(f"left out: {error}", stacklevel=2)
    rows = (
        replace(row, seeds=tuple(x for x in row.seeds if Cell(row.name, x) in finished))
        for row in plan.rows
    )
    plan = replace(plan, rows=tuple(rows))
    if (target / PLAN_FILE).exists():  # which may have more rows
        ours = {row.name: row for row in plan.rows}
        there = {row.name: row for row in load_plan(target).rows}
        plan = replace(plan, rows=tuple((there | ours).values()))
    claim_plan(target, plan)
    with locked(target / LOCK_FILE):  # shards copy the same runs
        missing = [cell for cell in plan.cells if not locate(cell.directory(target)).exists()]
        for cell in missing:
            copy_run(cell.directory(source), cell.directory(target))
    return missing


def finished_result(plan: Plan, cell: Cell, directory: Path) -> Result | None:
    """The result of the run of ``cell`` in ``directory``; None if it has not finished."""
    result, experiment = load_result(directory), plan.experiment(cell)
    if result is None:
        return None
    check_unchanged(directory)
    check_configuration(directory, experiment)  # by its config.json
    if (result.experiment, result.seed) != (experiment.name, cell.seed):
        raise InputError(f"{directory / RESULT_FILE} is of {result.experiment}, seed {result.seed}")
    return result


def copy_run(source: Path, target: Path) -> None:
    """Copy a run; the target is complete or does not exist."""
    with making(target) as part:
        part.mkdir(parents=True)
        for pattern in (*RECORDS, RESULT_FILE, PRUNED_FILE):
            for file in source.glob(pattern):
                shutil.copyfile(file, part / file.name)
        if (source / SUMS_FILE).is_file():  # all of it: a copy says what it leaves out
            shutil.copyfile(source / SUMS_FILE, part / SUMS_FILE)
