"""All numbers of a table's report, row by row."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from ablations.folder.base import Record
from ablations.report.scores import Score
from ablations.report.speed_up import SPEED_MEASURE, Speed, SpeedUp
from ablations.report.statistics import Estimate, Pool
from ablations.tables.changes import Value
from ablations.tables.plan import Plan
from ablations.tables.step_times import StepTimes
from ablations.tables.table import Reported
from ablations.tables.trainings import Training
from experiments.records.result import MEASURES, Measure, Result
from experiments.records.run import Run

# Scores that only some runs have, with their titles and decimals.
OTHER_SCORES = {
    "tokenised_bleu": ("BLEU tokenised", MEASURES["bleu"].digits),
    "averaged_perplexity": ("PPL averaged", MEASURES["perplexity"].digits),
    "averaged_bleu": ("BLEU averaged", MEASURES["bleu"].digits),
    "averaged_chrf": ("chrF averaged", MEASURES["chrf"].digits),
    "averaged_f1": ("F1 averaged", MEASURES["f1"].digits),
}


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


def by_seed(results: Iterable[Result], measure: Measure) -> dict[int, float]:
    """The scores by one measure, where results have it."""
    values = {result.seed: measure.of(result) for result in results}
    return {seed: float(value) for seed, value in values.items() if value is not None}


def has_same_pieces(row: RowNumbers, name: str) -> bool:
    """Whether a row has the base's vocabulary, or the score does not depend on word-pieces."""
    return "perplexity" not in name or "vocab_size" not in row.changed
