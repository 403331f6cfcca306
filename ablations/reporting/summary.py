"""What a table has come to: the numbers of a report, a pure function of the files on disk."""

from __future__ import annotations

import math
import statistics
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from ablations.attempts import locate, read_result
from ablations.plan import Plan, PlannedRow, Value, columns, load_plan
from ablations.statistics.correlation import Correlation, correlate
from ablations.statistics.estimates import Difference, Estimate, estimate, paired_difference
from ablations.table import Cell
from experiments.progress import Progress, read_progress
from experiments.results import RESULT_FILE, Result


@dataclass(frozen=True, slots=True)
class Unfinished:
    """A cell without a result, and how far it came; ``broken`` if its result cannot be read."""

    cell: Cell
    progress: Progress | None
    broken: bool = False


@dataclass(frozen=True, kw_only=True, slots=True)
class RowSummary:
    """One row that was asked for.

    ``cells`` are its columns as they are run, and ``changed`` those that differ from the base's.
    ``perplexity`` is per word-piece; it and ``bleu`` are of the validation set, over the seeds.
    So are the paper's way of BLEU, and both by the mean of more checkpoints, where runs have them.
    """

    row: PlannedRow
    cells: dict[str, Value]
    changed: frozenset[str]
    results: tuple[Result, ...]
    unfinished: tuple[Unfinished, ...]
    perplexity: Estimate | None
    bleu: Estimate | None
    tokenised_bleu: Estimate | None
    averaged_perplexity: Estimate | None
    averaged_bleu: Estimate | None

    @property
    def is_base(self) -> bool:
        """Whether the row changes nothing."""
        return not self.row.changes


@dataclass(frozen=True, kw_only=True, slots=True)
class Summary:
    """A table's rows that were asked for, in order, with what holds for all of them."""

    plan: Plan
    rows: tuple[RowSummary, ...]

    @property
    def base(self) -> RowSummary | None:
        """The row that changes nothing, if it was asked for."""
        return next((row for row in self.rows if row.is_base), None)

    @property
    def results(self) -> tuple[Result, ...]:
        """All that has finished."""
        return tuple(result for row in self.rows for result in row.results)

    def difference(self, row: RowSummary, name: str) -> Difference | None:
        """``perplexity`` or ``bleu`` of a row less the base's; None without a common seed."""
        if self.base is None:
            return None
        ours, base = (
            {result.seed: float(getattr(result, name)) for result in rows.results}
            for rows in (row, self.base)
        )
        return paired_difference(ours, base)

    def perplexity_correlation(self) -> Correlation:
        """How far our perplexities order the rows as the paper's do."""
        return self._correlation(lambda r: (r.perplexity, r.row.reported.perplexity))

    def bleu_correlation(self) -> Correlation:
        """How far our BLEU orders the rows as the paper's does."""
        return self._correlation(lambda r: (r.bleu, r.row.reported.bleu))

    def pooled_deviation(self, name: str) -> float | None:
        """The standard deviation between seeds of ``perplexity`` or ``bleu``, over all rows."""
        groups = [[float(getattr(x, name)) for x in row.results] for row in self.rows]
        groups = [group for group in groups if len(group) > 1 and all(map(math.isfinite, group))]
        if not groups:
            return None
        squares = sum(statistics.variance(group) * (len(group) - 1) for group in groups)
        return math.sqrt(squares / sum(len(group) - 1 for group in groups))

    def _correlation(
        self, pick: Callable[[RowSummary], tuple[Estimate | None, float | None]]
    ) -> Correlation:
        both = [
            (ours.mean, paper)
            for ours, paper in map(pick, self.rows)
            if ours is not None and paper is not None and not math.isnan(ours.mean)
        ]
        return correlate([x for x, _ in both], [y for _, y in both])


def summarise(directory: Path) -> Summary:
    """Read a table's directory.

    Raises:
        InputError: if it is not a table's.
    """
    plan = load_plan(directory)
    base = columns(plan.base)
    rows = [_row(row, base, directory) for row in plan.rows if row.seeds]
    digests = Counter(x.data_digest for row in rows for x in row.results if x.data_digest)
    if len(digests) > 1:  # figures of different data are not averaged
        data = digests.most_common(1)[0][0]
        rows = [_row(row, base, directory, data) for row in plan.rows if row.seeds]
    return Summary(plan=plan, rows=tuple(rows))


def _row(
    row: PlannedRow, base: dict[str, Value], directory: Path, data: str | None = None
) -> RowSummary:
    """A row's summary; results of other data than ``data``, if it is given, are left out."""
    cells = {name: row.scaled.get(name, value) for name, value in base.items()}
    results: list[Result] = []
    unfinished: list[Unfinished] = []
    for cell in (Cell(row.name, seed) for seed in row.seeds):
        path = locate(cell.directory(directory))
        result = read_result(path)
        if result is None:
            broken = (path / RESULT_FILE).exists()
            unfinished.append(Unfinished(cell, read_progress(path), broken))
        elif data is not None and result.data_digest not in (data, None):
            reason = f"left out: its data is {result.data_digest}, that of most runs {data}"
            unfinished.append(Unfinished(cell, Progress(stage="refused", message=reason)))
        else:
            results.append(result)
    averaged = [result.averaged for result in results if result.averaged is not None]
    tokenised = [result.tokenised_bleu for result in results]
    return RowSummary(
        row=row,
        cells=cells,
        changed=frozenset(name for name, value in cells.items() if value != base[name]),
        results=tuple(results),
        unfinished=tuple(unfinished),
        perplexity=estimate([result.perplexity for result in results]),
        bleu=estimate([result.bleu for result in results]),
        tokenised_bleu=estimate([value for value in tokenised if value is not None]),
        averaged_perplexity=estimate([scores.perplexity for scores in averaged]),
        averaged_bleu=estimate([scores.bleu for scores in averaged]),
    )
