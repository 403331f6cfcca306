"""All numbers of a table's report, computed once."""

from __future__ import annotations

import math
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence, Set
from dataclasses import dataclass, field, replace

from ablations.folder import TableFolder
from ablations.folder.base import Record
from ablations.report.scores import Score
from ablations.report.speed_up import SPEED_MEASURE, Speed, SpeedUp, mean_curve, speed_up
from ablations.report.statistics import (
    Estimate,
    Pool,
    estimate,
    one_of_each,
    paired_difference,
    pool,
)
from ablations.tables.changes import COLUMNS, Value
from ablations.tables.plan import Plan, PlannedRow
from ablations.tables.step_times import StepTimes
from ablations.tables.table import Reported
from ablations.tables.trainings import Training, is_equal_by_construction
from experiments.records.result import MEASURES, Measure, Result
from experiments.records.run import Run
from transformer.config import Config, DataConfig, text_settings

_AVERAGED = "averaged_"
# Scores that only some runs have, with their titles and decimals.
OTHER_SCORES = {
    "tokenised_bleu": ("BLEU tokenised", MEASURES["bleu"].digits),
    "averaged_perplexity": ("PPL averaged", MEASURES["perplexity"].digits),
    "averaged_bleu": ("BLEU averaged", MEASURES["bleu"].digits),
    "averaged_chrf": ("chrF averaged", MEASURES["chrf"].digits),
    "averaged_f1": ("F1 averaged", MEASURES["f1"].digits),
}
_COSTS = (
    *("parameters", "flops", "flops_nominal", "tokens_per_second", "train_seconds"),
    "sentences_per_second",
)
# Columns that the paper's Table 3 does not have.
_SHOWN_IF_CHANGED = {"positions", "vocab_size", "target_language"}


@dataclass(frozen=True, kw_only=True, slots=True)
class RowNumbers:
    """A row with its runs, and its ``scores`` by measure.

    ``training`` is None for a published system. ``changed`` are the settings that differ from the
    base's. ``means`` are means over the seeds of scores and costs, by the names of a Result's
    fields; those of averaged checkpoints begin with ``averaged_``.
    """

    name: str
    seeds: tuple[int, ...]
    is_base: bool
    is_published: bool
    is_of_same_text: bool
    reported: Reported
    reference: str
    training: Training | None
    settings: Mapping[str, Value]
    changed: frozenset[str]
    runs: Sequence[Run]
    means: Mapping[str, Estimate]
    scores: dict[str, Score] = field(default_factory=dict[str, Score])

    @property
    def results(self) -> list[Result]:
        """The results of its finished runs."""
        return [run.result for run in self.runs if run.result is not None]

    @property
    def diverged(self) -> list[Result]:
        """The results of its finished runs that diverged."""
        return [result for result in self.results if result.has_diverged]

    @property
    def unfinished(self) -> list[Run]:
        """The runs without a result."""
        return [run for run in self.runs if run.result is None]


@dataclass(frozen=True, kw_only=True, slots=True)
class TableNumbers:
    """The rows of a table that were asked for, in order, with their runs.

    ``has_seeds`` is True if a row has two finished runs or more. ``settings`` are the columns of
    settings: what these rows change and, for a table of the paper, all columns of Table 3;
    ``shown`` are those of all rows of the plan. ``pools`` are the pooled spreads by measure, and
    ``speed_ups`` those of rows whose validation curve can be compared with the base's.
    ``step_times`` are None if they were not measured.
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
    speed_ups: Mapping[str, SpeedUp]
    step_times: StepTimes | None = None

    def speed_up_in_time(self, row: str) -> Speed | None:
        """A row's speed-up in time: its speed-up in steps over its step's time, in base steps."""
        speed = self.speed_ups.get(row)
        ratio = self.step_times and self.step_times.ratios.get(row)
        return None if speed is None or ratio is None else speed.mean / ratio

    @property
    def shared(self) -> list[list[str]]:
        """The groups of rows with a result that share a training."""
        names: dict[Training | None, list[str]] = defaultdict(list)
        for row in self.rows:
            if row.results:
                names[row.training].append(row.name)
        return [rows for rows in names.values() if len(rows) > 1]

    @property
    def trained(self) -> list[Result]:
        """One result for each training and seed: rows that share a training count once."""
        found: dict[tuple[Training | None, int, float], Result] = {}
        for row in self.rows:
            for result in row.results:
                found.setdefault((row.training, result.seed, result.train_seconds), result)
        return list(found.values())

    @property
    def has_equal_scores(self) -> bool:
        """Whether a row's score equals the base's by construction."""
        return any(score.is_equal for row in self.rows for score in row.scores.values())

    def records(self) -> list[Record]:
        """A flat record for each row and measure, with the ends of the 95 % confidence intervals;
        None where a value is unknown.
        """
        return [_record(row, measure, self) for row in self.rows for measure in self.measures]


def _record(row: RowNumbers, measure: Measure, table: TableNumbers) -> Record:
    speed, in_time = None, None
    if measure.name == SPEED_MEASURE:
        speed, in_time = table.speed_ups.get(row.name), table.speed_up_in_time(row.name)
    slowest, fastest = speed.interval if speed and speed.interval else (None, None)
    score = row.scores[measure.name]
    ours, difference = score.ours, score.difference
    low, high = ours.interval if ours and ours.interval else (None, None)
    least, most = difference.interval if difference and difference.interval else (None, None)
    return {
        "row": row.name,
        "measure": measure.name,
        "seeds": ours.count if ours else 0,
        "mean": ours.mean if ours else None,
        "deviation": ours.deviation if ours else None,
        "low": low,
        "high": high,
        "difference": difference.mean if difference else None,
        "difference_low": least,
        "difference_high": most,
        "verdict": score.verdict or None,
        "paper": score.paper,
        "paper_difference": score.paper_difference,
        "agreement": score.agreement or None,
        "speed_up": speed.mean.known if speed else None,
        "speed_up_low": slowest.known if slowest else None,
        "speed_up_high": fastest.known if fastest else None,
        "speed_up_in_time": in_time.known if in_time else None,
    }


def compute_numbers(folder: TableFolder) -> TableNumbers:
    """All numbers that the report of a table shows."""
    plan, runs = folder.plan, defaultdict[str, list[Run]](list)
    for run in _on_same_data(folder):
        runs[run.row].append(run)
    asked_for = [row for row in plan.rows if row.seeds or row.published]
    trainings = {name: each for each in plan.trainings for name in each.rows}
    rows = [
        _describe(row, plan, runs[row.name], trainings.get(row.name))  # None if published
        for row in asked_for
    ]
    base = next((row for row in rows if row.is_base), None)
    has_seeds = any(len(row.results) > 1 for row in rows)
    measures = plan.compared
    pools: dict[str, Pool] = {}
    for measure in measures:
        pooled = _compute_scores(rows, base, measure, folder.configs, has_seeds=has_seeds)
        if pooled is not None:
            pools[measure.name] = pooled
    shown = plan.shown
    columns = {name for row in rows for name in row.changed}
    if plan.is_compared:
        columns |= COLUMNS.keys() - _SHOWN_IF_CHANGED
    return TableNumbers(
        plan=plan,
        measures=measures,
        rows=rows,
        base=base,
        results=[result for row in rows for result in row.results],
        has_seeds=has_seeds,
        settings=[name for name in shown if name in columns],
        shown=shown,
        pools=pools,
        speed_ups=_speed_ups(rows, base, folder.configs),
        step_times=folder.step_times,
    )


def _on_same_data(folder: TableFolder) -> list[Run]:
    """All runs; a run loses its result if most others with its settings were on other data.

    Results that do not record their data are accepted.
    """
    runs = folder.runs()
    settings = {name: text_settings(config) for name, config in folder.configs.items()}
    digests: Mapping[tuple[DataConfig, int], Counter[str]] = defaultdict(Counter)
    for run in runs:
        if run.result is not None and run.result.data_digest:
            digests[settings[run.row]][run.result.data_digest] += 1
    for index, run in enumerate(runs):
        if run.result is not None and run.result.data_digest:
            digest = run.result.data_digest
            [(of_most, _)] = digests[settings[run.row]].most_common(1)
            if digest != of_most:
                problem = f"its data is {digest}, but that of most runs is {of_most}"
                runs[index] = replace(run, result=None, problem=problem)
    return runs


def _describe(
    row: PlannedRow, plan: Plan, runs: Sequence[Run], training: Training | None
) -> RowNumbers:
    results = [run.result for run in runs if run.result is not None]
    means = {name: _mean(results, name) for name in (*MEASURES, *OTHER_SCORES, *_COSTS)}
    for measure in plan.compared:
        if measure.key:
            values = [*by_seed(results, measure).values()]
            means[measure.name] = estimate(values, measure.scale)
    changed = row.changed(plan.base)
    return RowNumbers(
        name=row.name,
        seeds=row.seeds,
        is_base=row.is_base,
        is_published=row.published,
        is_of_same_text=not row.published and "target_language" not in changed,
        reported=row.reported,
        reference=row.reference,
        training=training,
        settings=row.settings(plan.base),
        changed=changed,
        runs=runs,
        means={name: mean for name, mean in means.items() if mean is not None},
    )


def _mean(results: Sequence[Result], name: str) -> Estimate | None:
    score = name.removeprefix(_AVERAGED)
    values: list[float] = []
    for result in results:
        scored = result.averaged if name.startswith(_AVERAGED) else result
        value: float | None = getattr(scored, score, None)
        if value is not None:
            values.append(value)
    measure = MEASURES.get(score.removeprefix("tokenised_"))
    return estimate(values, measure.scale) if measure else estimate(values)


def _compute_scores(
    rows: Sequence[RowNumbers],
    base: RowNumbers | None,
    measure: Measure,
    configs: Mapping[str, Config],
    *,
    has_seeds: bool,
) -> Pool | None:
    """Compute each row's score by one measure; return the spread pooled over comparable rows."""
    name = measure.name
    values = {row.name: by_seed(row.results, measure) for row in rows}
    alike = {
        row.name: values[row.name]
        for row in rows
        if row.is_of_same_text and has_same_pieces(row, name)
    }
    trainings = {row.name: row.training for row in rows}
    # Runs on a plateau spread differently from runs that learn.
    diverged = {row.name for row in rows if row.diverged}
    sound = {name: own for name, own in alike.items() if name not in diverged}
    pooled = pool(one_of_each(sound, trainings)) if has_seeds else None
    for row in rows:
        difference, is_equal = None, False
        if base is not None and row.name in alike and not row.is_base:
            ours, theirs = values[row.name], values[base.name]
            difference = paired_difference(ours, theirs, measure.scale)
            if difference and row.training == base.training:
                is_equal = is_equal_by_construction(configs[row.name], configs[base.name], name)
                # Not if they were trained one by one, where no two trainings give equal weights.
                is_equal &= all(ours[seed] == theirs[seed] for seed in ours.keys() & theirs)
                if is_equal:
                    difference = replace(difference, mean=0.0, deviation=None)
            elif difference and pooled and not diverged & {row.name, base.name}:
                difference = pooled.apply(difference)
        row.scores[name] = Score(
            measure=measure,
            ours=row.means.get(name),
            by_seed=values[row.name],
            paper=getattr(row.reported, name, None),
            difference=difference,
            paper_difference=_paper_difference(row, base, name),
            is_equal=is_equal,
        )
    return pooled


def _speed_ups(
    rows: Sequence[RowNumbers], base: RowNumbers | None, configs: Mapping[str, Config]
) -> dict[str, SpeedUp]:
    """The speed-up of each row that has its own training and the base's word-pieces."""
    found: dict[str, SpeedUp] = {}
    for row in rows:
        score = row.scores.get(SPEED_MEASURE)
        if base is None or score is None or score.difference is None:
            continue
        if row.training == base.training or not math.isfinite(score.difference.mean):
            continue
        seeds = score.by_seed.keys() & base.scores[SPEED_MEASURE].by_seed
        of_base = mean_curve(_of_seeds(base, seeds), configs[base.name])
        of_row = mean_curve(_of_seeds(row, seeds), configs[row.name])
        if of_base and of_row and (speed := speed_up(of_base, of_row, score.difference)):
            found[row.name] = speed
    return found


def _of_seeds(row: RowNumbers, seeds: Set[int]) -> list[Run]:
    return [run for run in row.runs if run.result is not None and run.seed in seeds]


def by_seed(results: Iterable[Result], measure: Measure) -> dict[int, float]:
    """The scores by one measure, where results have it."""
    values = {result.seed: measure.of(result) for result in results}
    return {seed: float(value) for seed, value in values.items() if value is not None}


def has_same_pieces(row: RowNumbers, name: str) -> bool:
    """Whether a row has the base's vocabulary, or the score does not depend on word-pieces."""
    return "perplexity" not in name or "vocab_size" not in row.changed


def _paper_difference(row: RowNumbers, base: RowNumbers | None, name: str) -> float | None:
    if base is None or row.is_base or not row.is_of_same_text:
        return None
    ours: float | None = getattr(row.reported, name, None)
    of_base: float | None = getattr(base.reported, name, None)
    return None if ours is None or of_base is None else ours - of_base
