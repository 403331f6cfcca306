"""What the finished runs of a table took."""

from __future__ import annotations

from datetime import datetime
from pathlib import Path

from ablations.costs.timing import Timing
from ablations.plan import Plan
from ablations.table import Cell
from experiments.attempt import read_attempt
from experiments.results import Result, load_result
from transformer.config import Config, override


def row_configs(plan: Plan) -> dict[str, Config]:
    """The configuration of each row; its seed, on which no time depends, is the base's."""
    return {row.name: override(plan.base, **row.scaled) for row in plan.rows}


def elapsed(directory: Path, result: Result) -> float:
    """Seconds from a run's start to its end; of a run in several attempts, those of training."""
    attempt = read_attempt(directory)
    if attempt is None or attempt.number > 1:
        return result.train_seconds
    ended = datetime.fromisoformat(result.finished_at).timestamp()
    return max(result.train_seconds, ended - attempt.started_at)


def finished(root: Path, plan: Plan) -> dict[Cell, tuple[Timing, Result]]:
    """The finished cells of ``plan`` under ``root``, with the seconds of one device.

    Raises:
        InputError: if a file cannot be read.
    """
    configs = row_configs(plan)
    found: dict[Cell, tuple[Timing, Result]] = {}
    for cell in plan.cells:
        directory = cell.directory(root)
        result = load_result(directory)
        if result is not None:
            seconds = elapsed(directory, result) * result.devices
            found[cell] = Timing(configs[cell.row], seconds), result
    return found
