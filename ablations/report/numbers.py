"""Numbers of a report, rows by measures, computed once."""

from __future__ import annotations

import math
from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from ablations.report.statistics import Estimate, Pool, estimate, paired_difference, pool
from ablations.runs.attempts import locate
from ablations.tables.changes import COLUMNS, Value
from ablations.tables.collect import finished_result
from ablations.tables.plan import Plan, PlannedRow, load_plan
from ablations.tables.table import Cell, Reported
from experiments.records.progress import FINAL, Progress, RunState, read_progress
from experiments.records.result import MEASURES, Measure, Result
from transformer.config import DataConfig, text_settings
from transformer.errors import InputError

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


@dataclass(frozen=True, slots=True)
class Unfinished:
    """A run without a result, its state in few words, and the reason of a failure."""

    seed: int
    state: str
    reason: str = ""

    def __str__(self) -> str:
        return f"{self.state} ({self.reason})" if self.reason else self.state


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
    results: Sequence[Result]
    unfinished: Sequence[Unfinished]
    means: Mapping[str, Estimate]
    scores: dict[str, Score] = field(default_factory=dict[str, Score])


@dataclass(frozen=True, kw_only=True, slots=True)
class TableNumbers:
    """The rows of a table that were asked for, in order; their runs are in ``directory``.

    ``has_seeds`` is True if a row has two finished runs or more. ``settings`` are columns: what
    rows change and, next to the paper, all of Table 3; ``shown`` are those of any row of the plan.
    ``pools`` are the pooled spreads by measure.
    """

    directory: Path
    plan: Plan
    measures: Sequence[Measure]
    rows: Sequence[RowNumbers]
    base: RowNumbers | None
    results: Sequence[Result]
    has_seeds: bool
    settings: Sequence[str]
    shown: Sequence[str]
    pools: Mapping[str, Pool]


def compute_numbers(directory: Path) -> TableNumbers:
    """Read a table's directory and compute all that its report shows."""
    plan = load_plan(directory)
    runs = _read_runs(plan, directory)
    rows = [_read_row(row, plan, runs) for row in plan.rows if row.seeds or row.published]
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
        directory=directory,
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


def _read_runs(plan: Plan, directory: Path) -> dict[Cell, Result | Unfinished]:
    """All runs of the plan; those on other data than most with the same settings are left out.

    Results that do not name their data are accepted.
    """
    runs = {cell: _read_run(cell, plan, directory) for cell in plan.cells}
    settings = {name: text_settings(config) for name, config in plan.configs.items()}
    digests: Mapping[tuple[DataConfig, int], Counter[str]] = defaultdict(Counter)
    named = [
        (cell, settings[cell.row], run.data_digest)
        for cell, run in runs.items()
        if isinstance(run, Result) and run.data_digest
    ]
    for _, data, digest in named:
        digests[data][digest] += 1
    for cell, data, digest in named:
        ((most, _),) = digests[data].most_common(1)
        if digest != most:
            reason = f"its data is {digest}, that of most runs is {most}"
            runs[cell] = Unfinished(cell.seed, "left out", reason)
    return runs


def _read_run(cell: Cell, plan: Plan, directory: Path) -> Result | Unfinished:
    """The result of a run, if it is valid and of this cell."""
    path = locate(cell.directory(directory))
    try:
        result = finished_result(plan, cell, path)
        return result or Unfinished(cell.seed, *_state(read_progress(path)))
    except InputError as error:
        return Unfinished(cell.seed, "left out", str(error))


def _state(progress: Progress | None) -> tuple[str, str]:
    """How far a run is, and why it ended."""
    if progress is None:
        return "missing", ""
    if progress.stage in (RunState.TRAIN, RunState.STOPPED):
        return f"step {progress.step:,} of {progress.max_steps:,}", ""
    failed = progress.stage in FINAL and progress.stage != RunState.DONE
    return str(progress.stage), (progress.message or "no reason recorded") * failed


def _read_row(row: PlannedRow, plan: Plan, runs: Mapping[Cell, Result | Unfinished]) -> RowNumbers:
    own = [runs[Cell(row.name, seed)] for seed in row.seeds]
    results = [run for run in own if isinstance(run, Result)]
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
