"""The numbers of a table's report: rows by measures, computed once."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from ablations.files import PLAN_FILE
from ablations.report.pooling import Pool, pool
from ablations.report.runs import Run, Unfinished, read_runs, unplanned_runs
from ablations.report.statistics import (
    Correlation,
    Difference,
    Estimate,
    estimate,
    paired_difference,
    rank_correlation,
)
from ablations.tables.changes import COLUMNS, Value
from ablations.tables.plan import Plan, PlannedRow, load_plan
from ablations.tables.table import Cell
from experiments.run.measures import MEASURES, Measure
from experiments.run.results import Result
from transformer.errors import InputError

AGREES, CONTRADICTS, WITHIN_NOISE = "agrees", "contradicts", "within noise"
# Without a difference in the paper, and without an interval of ours.
NO_DIFFERENCE, SAME_SIGN, OTHER_SIGN = "none in paper", "same sign", "other sign"
_AVERAGED = "averaged_"
_MORE_SCORES = ("tokenised_bleu", f"{_AVERAGED}perplexity", f"{_AVERAGED}bleu", f"{_AVERAGED}f1")
# Not columns of Table 3.
_SHOWN_IF_CHANGED = {"positions", "vocab_size", "target_language"}


@dataclass(frozen=True, kw_only=True, slots=True)
class Score:
    """One measure of a row: ours, the paper's, and how much each differs from the base's.

    ``difference`` is None for the base, without a seed in common with it, on other text or, as
    perplexity is per word-piece, with another vocabulary; its deviation is the pooled one where
    that is usable.
    """

    measure: Measure
    ours: Estimate | None
    paper: float | None
    difference: Difference | None
    paper_difference: float | None

    @property
    def verdict(self) -> str:
        """Our difference beyond noise: ``better``, ``worse`` or ``within noise``; "" if unknown."""
        if self.difference is None or self.difference.within_noise is None:
            return ""
        if self.difference.within_noise:
            return WITHIN_NOISE
        falls = self.difference.mean < 0
        return "better" if falls == (self.measure.direction == "minimize") else "worse"

    @property
    def agreement(self) -> str:
        """The sign of our difference compared with that of the paper's; "" if one is unknown."""
        ours, paper = self.difference, self.paper_difference
        if ours is None or paper is None or math.isnan(ours.mean):
            return ""
        if ours.within_noise:
            return WITHIN_NOISE
        if not paper:
            return NO_DIFFERENCE
        same = ours.mean * paper > 0
        if ours.interval is None:
            return SAME_SIGN if same else OTHER_SIGN
        return AGREES if same else CONTRADICTS


@dataclass(frozen=True, kw_only=True, slots=True)
class RowNumbers:
    """A row, its runs and its ``scores`` by the table's measures.

    ``settings`` are the values of all settings as run, ``changed`` those that differ from the
    base's. ``means`` over the seeds are those of all scores, by the names of the fields of a
    Result; those of the mean of several checkpoints begin with ``averaged_``.
    """

    planned: PlannedRow
    settings: Mapping[str, Value]
    changed: frozenset[str]
    results: Sequence[Result]
    unfinished: Sequence[Unfinished]
    means: Mapping[str, Estimate]
    scores: Mapping[str, Score] = dataclasses.field(default_factory=dict)

    @property
    def name(self) -> str:
        """Its name in the table."""
        return self.planned.name

    @property
    def is_base(self) -> bool:
        """True if the row changes nothing."""
        return not self.planned.changes and not self.planned.published

    @property
    def is_published(self) -> bool:
        """True for a system of other authors, which is never run."""
        return self.planned.published

    @property
    def is_of_same_text(self) -> bool:
        """True if its scores are of the same text as the base's."""
        return not self.is_published and "target_language" not in self.changed


@dataclass(frozen=True, kw_only=True, slots=True)
class TableNumbers:
    """The rows of a table that were asked for, in order, whose runs are in ``directory``.

    ``pools`` are the pooled spreads of the measures, if there are enough seeds, ``correlations``
    those of our scores with the paper's, both by measure. ``unplanned`` are directories with a
    result that the plan does not list.
    """

    directory: Path
    plan: Plan
    rows: Sequence[RowNumbers]
    pools: Mapping[str, Pool]
    correlations: Mapping[str, Correlation]
    unplanned: Sequence[str]

    @property
    def measures(self) -> Sequence[Measure]:
        """The scores that the table compares."""
        return [MEASURES[name] for name in self.plan.measures]

    @property
    def base(self) -> RowNumbers | None:
        """The row that changes nothing, if it was asked for."""
        return next((row for row in self.rows if row.is_base), None)

    @property
    def results(self) -> Sequence[Result]:
        """All finished runs."""
        return [result for row in self.rows for result in row.results]

    @property
    def has_seeds(self) -> bool:
        """True if a row has two finished runs or more."""
        return any(len(row.results) > 1 for row in self.rows)

    @property
    def shown_settings(self) -> Sequence[str]:
        """The columns of settings: what rows change and, next to the paper, all of Table 3."""
        names = {name for row in self.rows for name in row.changed}
        if self.plan.is_compared:
            names |= COLUMNS.keys() - _SHOWN_IF_CHANGED
        return [name for name in self.plan.shown if name in names]


def compute_numbers(directory: Path) -> TableNumbers:
    """Read a table's directory and compute all that its report shows.

    Raises:
        InputError: if it is not the directory of a table.
    """
    plan = load_plan(directory)
    for row in plan.rows:
        if len(set(row.seeds)) < len(row.seeds):
            seeds = ", ".join(map(str, row.seeds))
            raise InputError(
                f"{directory / PLAN_FILE} lists a seed of row {row.name!r} twice ({seeds}): "
                "name each once"
            )
    runs = read_runs(plan, directory)
    rows = [_read_row(row, plan, runs) for row in plan.rows if row.seeds or row.published]
    base = next((row for row in rows if row.is_base), None)
    pools: dict[str, Pool] = {}
    if any(len(row.results) > 1 for row in rows):
        found = {name: pool({x.name: _by_seed(x, name) for x in rows}) for name in plan.measures}
        pools = {name: pooled for name, pooled in found.items() if pooled}
    rows = [
        dataclasses.replace(
            row, scores={name: _score(row, base, name, pools.get(name)) for name in plan.measures}
        )
        for row in rows
    ]
    return TableNumbers(
        directory=directory,
        plan=plan,
        rows=rows,
        pools=pools,
        correlations={name: _correlate([x.scores[name] for x in rows]) for name in plan.measures},
        unplanned=unplanned_runs(plan, directory),
    )


def _read_row(row: PlannedRow, plan: Plan, runs: Mapping[Cell, Run]) -> RowNumbers:
    own = [runs[Cell(row.name, seed)] for seed in row.seeds]
    results = [run for run in own if isinstance(run, Result)]
    means = {name: _mean(results, name) for name in (*MEASURES, *_MORE_SCORES)}
    return RowNumbers(
        planned=row,
        settings=row.settings(plan.base),
        changed=row.changed(plan.base),
        results=results,
        unfinished=[run for run in own if isinstance(run, Unfinished)],
        means={name: mean for name, mean in means.items() if mean is not None},
    )


def _mean(results: Sequence[Result], name: str) -> Estimate | None:
    field = name.removeprefix(_AVERAGED)
    of = [x.averaged if name.startswith(_AVERAGED) else x for x in results]
    values: list[float | None] = [getattr(x, field, None) for x in of]
    scale = MEASURES[field.removeprefix("tokenised_")].scale
    return estimate([value for value in values if value is not None], scale)


def _by_seed(row: RowNumbers, name: str) -> dict[int, float]:
    found = {result.seed: getattr(result, name) for result in row.results}
    return {seed: float(score) for seed, score in found.items() if score is not None}


def _score(row: RowNumbers, base: RowNumbers | None, name: str, pooled: Pool | None) -> Score:
    measure, paper = MEASURES[name], _reported(row, name)
    difference = paper_difference = None
    if base is not None and row.is_of_same_text and not row.is_base:
        if "perplexity" not in name or "vocab_size" not in row.changed:
            difference = paired_difference(_by_seed(row, name), _by_seed(base, name), measure.scale)
        if difference and pooled:
            difference = pooled.apply(difference)
        theirs = _reported(base, name)
        if paper is not None and theirs is not None:
            paper_difference = paper - theirs
    return Score(
        measure=measure,
        ours=row.means.get(name),
        paper=paper,
        difference=difference,
        paper_difference=paper_difference,
    )


def _reported(row: RowNumbers, name: str) -> float | None:
    return getattr(row.planned.reported, name, None)


def _correlate(scores: Iterable[Score]) -> Correlation:
    """Compare the order of the rows by our scores with that by the paper's."""
    both = [
        (score.ours.mean, score.paper)
        for score in scores
        if score.ours and score.paper is not None and not math.isnan(score.ours.mean)
    ]
    return rank_correlation([ours for ours, _ in both], [paper for _, paper in both])
