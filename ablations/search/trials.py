"""A search's trials, and which are the best."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from ablations.files import CONFIRM, PLAN_FILE
from ablations.search.search import Search
from ablations.tables.changes import Value
from ablations.tables.plan import Plan, make_plan
from ablations.tables.plan_file import load_plan
from ablations.tables.scale import scale
from ablations.tables.table import Reported, Row, Table
from experiments.records.experiment import BEST_FILE, Experiment
from experiments.records.progress import RunState
from experiments.records.result import MEASURES, Result
from experiments.records.run import Run
from transformer import formats
from transformer.config import to_dict
from transformer.errors import InputError
from transformer.files import write_json

_CONFIRMING_SEEDS = 3
_MOST_WITHOUT = 10  # trials without a finite perplexity, after which a search gives up
_ORDER = {RunState.DONE: 0, RunState.PRUNED: 1, RunState.DIVERGED: 2}
_BEST = 0.25  # the share of trials whose settings are compared with those of all
_LEAST_BEST = 5  # trials that are enough where ties leave fewer than a quarter


@dataclass(frozen=True, kw_only=True, slots=True)
class SearchTrial:
    """A trial of a search.

    ``perplexity`` is that of the validation set at ``step``, where the trial finished or was
    pruned; None if it is not finite or not known yet. ``curve`` has it by step.
    """

    name: str
    state: RunState
    values: Mapping[str, Value] = field(default_factory=dict)
    step: int = 0
    perplexity: float | None = None
    curve: Mapping[int, float] = field(default_factory=dict)
    result: Result | None = None
    reason: str = ""


def make_trial(search: Search, run: Run) -> SearchTrial:
    """A run as a trial; if it has begun, it counts as running until it ends or is given up."""
    if run.experiment is None:
        return SearchTrial(name=run.name, state=RunState.WAITING)
    values = search.values(run.experiment.config)
    if run.is_at_end:
        return replace(ended_trial(run), values=values)
    return SearchTrial(
        name=run.name,
        state=RunState.FAILED if run.is_given_up else RunState.RUNNING,
        values=values,
        curve=run.curve,
        step=run.progress.step if run.progress else 0,
        reason=run.failures[-1].reason if run.is_given_up and run.failures else "",
    )


def ended_trial(run: Run) -> SearchTrial:
    """The trial of an ended run, without its values."""
    if run.result is not None:
        state, step, perplexity = RunState.DONE, run.result.steps, run.result.perplexity
    else:
        assert run.pruned is not None
        state, step, perplexity = RunState.PRUNED, run.pruned.step, run.pruned.perplexity
    is_finite = perplexity is not None and math.isfinite(perplexity)
    return SearchTrial(
        name=run.name,
        state=state if is_finite else RunState.DIVERGED,
        curve={at: value for at, value in run.curve.items() if at <= step},
        step=step,
        perplexity=perplexity if is_finite else None,
        result=run.result,
        reason="" if is_finite else f"no finite perplexity at step {step:,}",
    )


def ranked(trials: Sequence[SearchTrial]) -> list[SearchTrial]:
    """The ended trials, the best first: finished ones by perplexity, then pruned ones, those pruned
    latest first, then diverged ones.
    """
    return sorted((trial for trial in trials if trial.state in _ORDER), key=_place)


def _place(trial: SearchTrial) -> tuple[int, int, float]:
    step = -trial.step if trial.state == RunState.PRUNED else 0
    return _ORDER[trial.state], step, trial.perplexity or math.inf


def count_best(ended: Sequence[SearchTrial]) -> int:
    """How many of the ``ended`` trials (at least one, the best first) are the best quarter.

    Trials that the report shows with the same perplexity as the quarter's last one all count. If
    the quarter would then be more than half of the trials, none of these counts, and the result is
    0 if fewer than five are left.
    """
    digits = MEASURES["perplexity"].digits
    shown: list[tuple[int, int, str]] = []
    for trial in ended:
        rank, step, _ = _place(trial)
        shown.append((rank, step, formats.number(trial.perplexity, digits)))
    last = shown[math.ceil(_BEST * len(shown)) - 1]
    better, alike = shown.index(last), shown.count(last)
    if 2 * (better + alike) <= len(shown):
        return better + alike
    return better if better >= _LEAST_BEST else 0


def best(trials: Sequence[SearchTrial]) -> SearchTrial | None:
    """The finished trial with the lowest perplexity; None if none has finished."""
    return next((trial for trial in ranked(trials) if trial.state == RunState.DONE), None)


def check_any_finite(search: Search, trials: Sequence[SearchTrial]) -> None:
    """Raise an InputError if ten trials, or all, ended without any finite perplexity."""
    unfinished = (RunState.RUNNING, RunState.WAITING)
    ended = [trial for trial in trials if trial.state not in unfinished]
    if any(trial.perplexity is not None for trial in ended):
        return
    if len(ended) < min(_MOST_WITHOUT, search.trials):
        return
    raise InputError(
        f"none of {len(ended)} trials of {search.name} had a finite perplexity (the last: "
        f"{ended[-1].reason or 'no reason recorded'}): narrow the space or lower the scale's "
        "learning rate, and search in another --directory"
    )


def write_best(search: Search, trials: Sequence[SearchTrial], root: Path) -> None:
    """Write the best configuration as an experiment, ``best.json``, once a trial has finished."""
    found = best(trials)
    if found is None:
        return
    experiment = Experiment(
        name=f"{search.name}-best",
        description=(
            f"{search.title}, the best of {len(ranked(trials))} trials at scale {search.scale}: "
            f"{found.name}, perplexity {formats.number(found.perplexity, 3)}"
        ),
        config=search.configure(found.values),
        tags=("search", search.space, search.scale),
    )
    write_json(root / BEST_FILE, to_dict(experiment))


def plan_confirmation(
    search: Search, trials: Sequence[SearchTrial], count: int, root: Path
) -> Plan:
    """A table that trains the base and the ``count`` best trials again with new seeds, the best
    first, as the best owes part of its perplexity to luck. Rows that the table already has stay.
    """
    base = search.values(search.base)
    finished: list[SearchTrial] = []
    for trial in ranked(trials):
        is_new = trial.values not in [base, *(each.values for each in finished)]
        if trial.state == RunState.DONE and is_new:
            finished.append(trial)
    if not 1 <= count <= len(finished):
        raise InputError(
            f"--confirm is {count}, but {len(finished)} trials other than the base have finished"
        )
    first = search.base.training.seed + 1
    found = {"base": dict[str, Value]()}
    found |= {trial.name: search.changes(trial.values) for trial in finished[:count]}
    if (root / CONFIRM / PLAN_FILE).is_file():
        found |= {row.name: row.changes for row in load_plan(root / CONFIRM).rows}
    # Everything is trained as in the search, so this scale changes nothing.
    as_it_is = scale(search.scale, corpus=search.base.data.corpus)
    table = Table(
        name=search.space,
        title=f"{search.title}: the best trials again, with other seeds",
        base=search.base,
        rows=tuple(Row(name=x, reported=Reported(), changes=y) for x, y in found.items()),
        measures=(*search.measures,),
    )
    plan = make_plan(table, as_it_is, table.rows, range(first, first + _CONFIRMING_SEEDS))
    return replace(plan, table=f"{search.space}-confirm")
