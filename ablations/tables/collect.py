"""Copy the finished runs of a table to another directory, without their checkpoints.

The copy has what a report reads and what a later run can add to, a few hundred kilobytes per run,
small enough to commit or to send to another machine.
"""

from __future__ import annotations

import shutil
from dataclasses import replace
from pathlib import Path

from ablations.runner.attempts import newest, read_result
from ablations.tables.plan import Plan, claim_plan, load_plan
from ablations.tables.table import Cell
from experiments.run.data import DATA_FILE
from experiments.run.experiment import CONFIG_FILE, load_experiment
from experiments.run.results import METRICS_FILE, RESULT_FILE, hypotheses_path, samples_path
from transformer.config import differences, to_dict
from transformer.errors import InputError
from transformer.files import rename

_KEPT = (
    CONFIG_FILE,
    DATA_FILE,
    RESULT_FILE,
    METRICS_FILE,
    hypotheses_path(Path(), "*").name,
    samples_path(Path(), "*").name,
)


def collect(source: Path, target: Path) -> list[Cell]:
    """Copy the finished runs of ``source`` that ``target`` has not begun, and add them to its plan.

    Returns:
        The runs that were copied.

    Raises:
        InputError: if ``source`` is not a table's, ``target`` belongs to another table or scale,
            or a run was trained with another configuration than its row's.
    """
    plan = _finished_part(source)
    for cell in plan.cells:
        _refuse_another(plan, cell, cell.directory(source))
    claim_plan(target, plan)
    missing = [cell for cell in plan.cells if newest(cell.directory(target)) is None]
    for cell in missing:
        _copy(cell.directory(source), cell.directory(target))
    return missing


def _finished_part(directory: Path) -> Plan:
    """The plan of ``directory``, reduced to the seeds that have a result."""
    plan = load_plan(directory)
    rows = [
        replace(
            row,
            seeds=tuple(
                seed for seed in row.seeds if read_result(Cell(row.name, seed).directory(directory))
            ),
        )
        for row in plan.rows
    ]
    return replace(plan, rows=tuple(rows))


def _refuse_another(plan: Plan, cell: Cell, directory: Path) -> None:
    found, planned = load_experiment(directory).config, plan.experiment(cell).config
    changes = differences(to_dict(planned), to_dict(found))
    if changes:
        raise InputError(
            f"{directory} is not a run of {plan.table} at scale {plan.scale} "
            f"({'; '.join(changes)}): remove it there first"
        )


def _copy(source: Path, target: Path) -> None:
    """Copy a run; the target is complete or does not exist."""
    part = target.with_name(f".{target.name}.part")
    shutil.rmtree(part, ignore_errors=True)
    part.mkdir(parents=True)
    for pattern in _KEPT:
        for file in source.glob(pattern):
            shutil.copyfile(file, part / file.name)
    rename(part, target)
