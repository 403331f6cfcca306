"""Numbers of a report, rows by measures, computed once."""

from __future__ import annotations

import math
from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

from ablations.folder import Record, TableFolder
from ablations.report.statistics import Estimate, Pool, estimate, paired_difference, pool
from ablations.tables.changes import COLUMNS, Value
from ablations.tables.plan import Plan, PlannedRow
from ablations.tables.table import Reported
from experiments.records.progress import FINAL, RunState
from experiments.records.result import MEASURES, Measure, Result
from experiments.records.run import Run
from transformer.config import DataConfig, text_settings

WITHIN_NOISE = "within noise"
_AVERAGED = "averaged_"
# Scores that only some runs have: their titles and decimals.
OTHER_SCORES = {
    "tokenised_bleu": ("BLEU tokenised", MEASURES["bleu"].digits),
    "averaged_perplexity": ("PPL averaged", MEASURES["perplexity"].digits),
    "averaged_bleu": ("BLEU averaged", MEASURES["bleu"].digits),
    "averaged_f1": ("F1 averaged", MEASURES["f1"].digits),
}
# Not columns of Table 3.
_SHOWN_IF_CHANGED = {"positions", "vocab_size", "target_language"}


@dataclass(frozen=True, kw_only=True, slots=True)
class Score:
    """One measure of a row: ours, the paper's, and how much each differs from the base's.

    ``verdict`` is better, worse or within noise, ``agreement`` how the sign of the difference
    compares with the paper's; both are "" where they are unknown.
    """

    ours: Estimate | None
    paper: float | None
    difference: Estimate | None
    paper_difference: float | None
    verdict: str
    agreement: str


@dataclass(frozen=True, kw_only=True, slots=True)
class RowNumbers:
    """A row with its runs, and its ``scores`` by measure.

    ``changed`` are the settings that differ from the base's. ``means`` over the seeds are those of
    all scores, by the names of the fields of a Result; those of the mean of several checkpoints
    begin with ``averaged_``.
    """

    name: str
    seeds: tuple[int, ...]
    is_base: bool
    is_published: bool
    is_of_same_text: bool
    reported: Reported
    reference: str
    settings: Mapping[str, Value]
    changed: frozenset[str]
    runs: Sequence[Run]
    means: Mapping[str, Estimate]
    scores: dict[str, Score] = field(default_factory=dict[str, Score])

    @property
    def results(self) -> list[Result]:
        """Those of its finished runs."""
        return [run.result for run in self.runs if run.result is not None]

    @property
    def unfinished(self) -> list[Run]:
        """The runs without a result."""
        return [run for run in self.runs if run.result is None]


@dataclass(frozen=True, kw_only=True, slots=True)
class TableNumbers:
    """The rows of a table that were asked for, in order, with their runs.

    ``has_seeds`` is True if a row has two finished runs or more. ``settings`` are columns: what
    rows change and, next to the paper, all of Table 3; ``shown`` are those of any row of the plan.
    ``pools`` are the pooled spreads by measure.
    """

    plan: Plan
    measures: Sequence[Measure]
    rows: Sequence[RowNumbers]
    base: RowNumbers | None
    results: Sequence[Result]
    has_seeds: bool
    settings: Sequence[str]
    shown: Sequence[str]
    pools: Mapping[str, Pool]

    def records(self) -> list[Record]:
        """A flat record for each row and measure, with the ends of the 95 % intervals; None where
        something is unknown.
        """
        return [_record(row, measure) for row in self.rows for measure in self.measures]


def _record(row: RowNumbers, measure: Measure) -> Record:
    score = row.scores[measure.name]
    ours, difference = score.ours, score.difference
    low, high = (ours and ours.interval) or (None, None)
    least, most = (difference and difference.interval) or (None, None)
    return {
        "row": row.name,
        "measure": measure.name,
        "seeds": ours.count if ours else 0,
        "mean": ours and ours.mean,
        "deviation": ours and ours.deviation,
        "low": low,
        "high": high,
        "difference": difference and difference.mean,
        "difference_low": least,
        "difference_high": most,
        "verdict": score.verdict or None,
        "paper": score.paper,
        "paper_difference": score.paper_difference,
        "agreement": score.agreement or None,
    }


def compute_numbers(folder: TableFolder) -> TableNumbers:
    """All numbers that the report of a table shows."""
    plan, runs = folder.plan, defaultdict[str, list[Run]](list)
    for run in _on_same_data(folder):
        runs[run.row].append(run)
    rows = [_describe(x, plan, runs[x.name]) for x in plan.rows if x.seeds or x.published]
    base = next((row for row in rows if row.is_base), None)
    has_seeds = any(len(row.results) > 1 for row in rows)
    pools: dict[str, Pool] = {}
    for name in plan.measures:
        alike = {row.name: by_seed(row, name) for row in rows if _is_comparable(row, name)}
        if has_seeds and (found := pool(alike)) is not None:
            pools[name] = found
        for row in rows:
            row.scores[name] = _score(row, base, name, pools.get(name))
    changed, shown = {name for row in rows for name in row.changed}, plan.shown
    of_paper = COLUMNS.keys() - _SHOWN_IF_CHANGED if plan.is_compared else ()
    return TableNumbers(
        plan=plan,
        measures=[MEASURES[name] for name in plan.measures],
        rows=rows,
        base=base,
        results=[result for row in rows for result in row.results],
        has_seeds=has_seeds,
        settings=[name for name in shown if name in changed or name in of_paper],
        shown=shown,
        pools=pools,
    )


def _on_same_data(folder: TableFolder) -> list[Run]:
    """All runs; those on other data than most with the same settings are left out.

    Results that do not name their data are accepted.
    """
    runs = folder.runs()
    settings = {name: text_settings(config) for name, config in folder.configs.items()}
    digests: Mapping[tuple[DataConfig, int], Counter[str]] = defaultdict(Counter)
    for run in runs:
        if run.result is not None and run.result.data_digest:
            digests[settings[run.row]][run.result.data_digest] += 1
    for index, run in enumerate(runs):
        digest = run.result and run.result.data_digest
        most = digests[settings[run.row]].most_common(1)
        if digest and digest != most[0][0]:
            problem = f"its data is {digest}, that of most runs is {most[0][0]}"
            runs[index] = replace(run, result=None, problem=problem)
    return runs


def state_of(run: Run) -> tuple[str, str]:
    """How far a run without a result is, in few words, and why it failed or is left out."""
    progress = run.progress
    if run.problem:
        return "left out", run.problem
    if progress is None:
        return "missing", ""
    if progress.stage in (RunState.TRAIN, RunState.STOPPED):
        return f"step {progress.step:,} of {progress.max_steps:,}", ""
    failed = progress.stage in FINAL and progress.stage != RunState.DONE
    return str(progress.stage), (progress.message or "no reason recorded") * failed


def describe_state(run: Run) -> str:
    """The state of a run without a result, with the reason in parentheses."""
    state, reason = state_of(run)
    return f"{state} ({reason})" if reason else state


def _describe(row: PlannedRow, plan: Plan, runs: Sequence[Run]) -> RowNumbers:
    results = [run.result for run in runs if run.result is not None]
    means = {name: _mean(results, name) for name in (*MEASURES, *OTHER_SCORES)}
    changed = row.changed(plan.base)
    return RowNumbers(
        name=row.name,
        seeds=row.seeds,
        is_base=row.is_base,
        is_published=row.published,
        is_of_same_text=not row.published and "target_language" not in changed,
        reported=row.reported,
        reference=row.reference,
        settings=row.settings(plan.base),
        changed=changed,
        runs=runs,
        means={name: mean for name, mean in means.items() if mean is not None},
    )


def _mean(results: Sequence[Result], name: str) -> Estimate | None:
    field = name.removeprefix(_AVERAGED)
    of = [x.averaged if name.startswith(_AVERAGED) else x for x in results]
    values: list[float | None] = [getattr(x, field, None) for x in of]
    scale = MEASURES[field.removeprefix("tokenised_")].scale
    return estimate([value for value in values if value is not None], scale)


def by_seed(row: RowNumbers, name: str) -> dict[int, float]:
    """A row's values of a score by seed."""
    return {x.seed: float(y) for x in row.results if (y := getattr(x, name)) is not None}


def _is_comparable(row: RowNumbers, name: str) -> bool:
    return row.is_of_same_text and has_same_pieces(row, name)


def has_same_pieces(row: RowNumbers, name: str) -> bool:
    """Whether a row has the base's vocabulary, or a score that is not per word-piece of it."""
    return "perplexity" not in name or "vocab_size" not in row.changed


def _score(row: RowNumbers, base: RowNumbers | None, name: str, pooled: Pool | None) -> Score:
    measure = MEASURES[name]
    paper: float | None = getattr(row.reported, name, None)
    difference = paper_difference = None
    if base is not None and row.is_of_same_text and not row.is_base:
        if _is_comparable(row, name):
            ours, theirs = by_seed(row, name), by_seed(base, name)
            difference = paired_difference(ours, theirs, measure.scale)
        if difference and pooled:
            difference = pooled.apply(difference)
        of_base: float | None = getattr(base.reported, name, None)
        if paper is not None and of_base is not None:
            paper_difference = paper - of_base
    return Score(
        ours=row.means.get(name),
        paper=paper,
        difference=difference,
        paper_difference=paper_difference,
        verdict=_verdict(measure, difference),
        agreement=_agreement(difference, paper_difference),
    )


def _verdict(measure: Measure, difference: Estimate | None) -> str:
    if difference is None or difference.within_noise is None:
        return ""
    if difference.within_noise:
        return WITHIN_NOISE
    return "better" if is_better(measure, difference.mean) else "worse"


def is_better(measure: Measure, difference: float) -> bool:
    """Whether a row that differs so from the base is better than it."""
    return (difference < 0) == (measure.direction == "minimize")


def _agreement(ours: Estimate | None, paper: float | None) -> str:
    if ours is None or paper is None or math.isnan(ours.mean):
        return ""
    if ours.within_noise or not ours.mean:
        return WITHIN_NOISE
    if not paper:
        return "none in paper"
    same = ours.mean * paper > 0
    if ours.interval is None:
        return "same sign" if same else "other sign"
    return "agrees" if same else "contradicts"
