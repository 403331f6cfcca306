"""Train the best trials again with fresh seeds.

The best of many trials owes a part of its perplexity to luck, which another seed does not share.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from ablations.files import CONFIRM, PLAN_FILE
from ablations.search.search import Search
from ablations.search.trials import Trial, ranked
from ablations.tables.plan import Plan, PlannedRow, load_plan
from ablations.tables.table import Reported
from experiments.records.progress import RunState
from transformer.errors import InputError

SEEDS = 3


def plan_confirmation(search: Search, trials: Sequence[Trial], count: int, directory: Path) -> Plan:
    """A table of the base and the ``count`` best trials, and of those in ``directory`` before."""
    base = search.values(search.base)
    finished = [x for x in ranked(trials) if x.state == RunState.DONE and x.values != base]
    if not 1 <= count <= len(finished):
        raise InputError(
            f"--confirm is {count}, but {len(finished)} trials other than the base have finished"
        )
    first = search.base.training.seed + 1
    seeds = tuple(range(first, first + SEEDS))
    rows = {x.name: _row(search, x, seeds) for x in finished[:count]}
    if (directory / CONFIRM / PLAN_FILE).is_file():
        rows = {x.name: x for x in load_plan(directory / CONFIRM).rows} | rows
    rows.pop("base", None)
    return Plan(
        table=f"{search.space}-confirm",
        title=f"{search.title}: the best trials again, with other seeds",
        scale=search.scale,
        divide_widths=1,
        divide_layers=1,
        base=search.base,
        rows=(_row(search, None, seeds), *(rows[name] for name in sorted(rows))),
    )


def _row(search: Search, trial: Trial | None, seeds: tuple[int, ...]) -> PlannedRow:
    values = {
        field: trial.values[parameter.name]
        for parameter in search.parameters
        for field in parameter.fields
        if trial is not None
    }
    name = "base" if trial is None else trial.name
    return PlannedRow(name=name, reported=Reported(), changes=values, scaled=values, seeds=seeds)
