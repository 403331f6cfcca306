"""The runs that a table or a search is to have, and the time until they have ended."""

from __future__ import annotations

import statistics
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from ablations.costs.timing import Timing, predict, until_the_last
from ablations.files import PLAN_FILE, SEARCH_FILE
from ablations.search.rungs import count_passed
from ablations.search.search import Search, load_search
from ablations.status.model import ENDED, Run, Status
from ablations.tables.plan import Plan, load_plan
from experiments.run.progress import RunState
from transformer.config import Config
from transformer.evaluation.counts import run_flops


@dataclass(frozen=True, kw_only=True, slots=True)
class Planned:
    """All runs by name with their configurations, None for one that is still to be sampled, and the
    measures that are a trial's values. ``rungs`` are the steps at which trials may be pruned.
    """

    title: str
    configs: Mapping[str, Config | None]
    measures: tuple[str, ...] = ("perplexity",)
    rungs: tuple[int, ...] = ()


def is_claimed(directory: Path) -> bool:
    """Whether a directory is a table's or a search's."""
    return (directory / PLAN_FILE).is_file() or (directory / SEARCH_FILE).is_file()


def read_planned(directory: Path) -> Planned:
    """Read what is planned in a table's or a search's directory.

    Raises:
        InputError: if it is neither.
    """
    if (directory / SEARCH_FILE).is_file():
        return _of_search(load_search(directory))
    return _of_plan(load_plan(directory))


def _of_plan(plan: Plan) -> Planned:
    configs = plan.configs
    return Planned(
        title=f"{plan.table} at scale {plan.scale}",
        configs={str(cell): configs[cell.row] for cell in plan.cells},
        measures=plan.valid_measures,
    )


def _of_search(search: Search) -> Planned:
    return Planned(
        title=f"search {search.space} at scale {search.scale}",
        configs=dict.fromkeys(search.names),
        rungs=search.rungs,
    )


def make_status(planned: Planned, runs: Sequence[Run], now: float) -> Status:
    """Add the time left, judged by the runs that are done or in progress."""
    whole = {run.name: seconds for run in runs if (seconds := _whole(run)) is not None}
    of_rows: dict[int, list[float]] = {}  # by identity: a row's seeds share its configuration
    for name, seconds in whole.items():
        of_rows.setdefault(id(planned.configs.get(name)), []).append(seconds)
    rows = {id(config): config for config in planned.configs.values() if config is not None}
    timings = [
        Timing(rows[row], statistics.fmean(seconds))
        for row, seconds in of_rows.items()
        if row in rows
    ]
    predicted = {row: predict(config, timings) for row, config in rows.items()}
    flops = {row: run_flops(config) for row, config in rows.items()}
    mean = statistics.fmean(whole.values()) if whole else None

    def expected(run: Run) -> float | None:
        return predicted.get(id(planned.configs.get(run.name)), mean)

    estimated = tuple(replace(run, seconds_left=_left(run, expected(run))) for run in runs)
    passed = count_passed(planned.rungs, map(_end, runs))
    status = Status(title=planned.title, at=now, runs=estimated, seconds_left=None, passed=passed)
    live = [run for run in status.running if status.silent_for(run) is None]
    at_work = {run.name for run in live}
    waiting = [run for run in status.runs if run.state not in ENDED and run.name not in at_work]
    waiting.sort(key=lambda run: -flops.get(id(planned.configs.get(run.name)), 0.0))
    left = [run.seconds_left for run in live]
    known, later = _all_known(left), _all_known([expected(run) for run in waiting])
    if not known or later is None:
        return status
    return replace(status, seconds_left=until_the_last(known, later, len(live)))


def _end(run: Run) -> tuple[int, bool]:
    """The step that a trial has reached, and whether it ended there early."""
    step = run.progress.step if run.progress else 0
    return (sys.maxsize if run.state == RunState.DONE else step), run.state == RunState.PRUNED


def _all_known(values: Sequence[float | None]) -> list[float] | None:
    known = [value for value in values if value is not None]
    return known if len(known) == len(values) else None


def _whole(run: Run) -> float | None:
    """How long a run takes from its start to its end; None if it cannot be told yet."""
    if run.state == RunState.DONE:
        return run.seconds
    progress = run.progress
    if run.state != RunState.RUNNING or progress is None or progress.seconds_left is None:
        return None
    rest = progress.max_steps - progress.step
    if progress.stage != RunState.TRAIN or rest <= 0:
        return None
    return progress.seconds_left * progress.max_steps / rest


def _left(run: Run, expected: float | None) -> float | None:
    if run.state != RunState.RUNNING:
        return None
    progress = run.progress
    if progress is not None and progress.seconds_left is not None:
        return progress.seconds_left
    if progress is None or progress.stage == RunState.PREPARE:
        return expected
    if progress.stage != RunState.TRAIN or not progress.max_steps:
        return 0.0
    return None if expected is None else expected * (1 - progress.step / progress.max_steps)
