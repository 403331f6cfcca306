"""What the finished runs of a table took."""

from __future__ import annotations

from pathlib import Path

from ablations.costs.timing import Timing
from ablations.runner.attempts import elapsed, read_result
from ablations.tables.plan import Plan
from ablations.tables.table import Cell
from experiments.run.results import Result
from transformer.config import Config, override


def row_configs(plan: Plan) -> dict[str, Config]:
    """The configuration of each row; its seed, on which no time depends, is the base's."""
    return {row.name: override(plan.base, **row.scaled) for row in plan.rows}


def finished(root: Path, plan: Plan) -> dict[Cell, tuple[Timing, Result]]:
    """The finished cells of ``plan`` under ``root``, with the seconds of one device.

    Raises:
        InputError: if a row is none that this version can train.
    """
    configs = row_configs(plan)
    found: dict[Cell, tuple[Timing, Result]] = {}
    for cell in plan.cells:
        directory = cell.directory(root)
        result = read_result(directory)
        if result is not None:
            seconds = elapsed(directory, result) * result.devices
            found[cell] = Timing(configs[cell.row], seconds), result
    return found
