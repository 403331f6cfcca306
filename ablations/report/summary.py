"""What a table has come to: the numbers of a report, a pure function of the files on disk."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

from ablations.report.correlation import Correlation, correlate
from ablations.report.estimates import Difference, Estimate, estimate, paired_difference
from ablations.report.pooled import Pool, pool
from ablations.runner.attempts import locate, number
from ablations.tables.plan import PLAN_FILE, Plan, PlannedRow, Value, columns, load_plan
from ablations.tables.table import Cell
from experiments.run.experiment import check_configuration
from experiments.run.progress import Progress, read_progress
from experiments.run.results import RESULT_FILE, Result, load_result
from transformer.errors import InputError

MEASURES = {"perplexity": "Perplexity", "bleu": "BLEU"}


@dataclass(frozen=True, slots=True)
class Unfinished:
    """A cell without a result, and how far it came, or why its result is ``left_out``."""

    cell: Cell
    progress: Progress | None
    left_out: str | None = None


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
    """A table's rows that were asked for, in order, with what holds for all of them.

    ``pools`` are the spreads of perplexity and BLEU, where seeds allow one; ``strangers`` are
    directories with a result of which the plan does not know.
    """

    plan: Plan
    rows: tuple[RowSummary, ...]
    pools: Mapping[str, Pool]
    strangers: tuple[str, ...]

    @property
    def base(self) -> RowSummary | None:
        """The row that changes nothing, if it was asked for."""
        return next((row for row in self.rows if row.is_base), None)

    @property
    def results(self) -> tuple[Result, ...]:
        """All that has finished."""
        return tuple(result for row in self.rows for result in row.results)

    def difference(self, row: RowSummary, name: str) -> Difference | None:
        """``perplexity`` or ``bleu`` of a row less the base's; None without a common seed.

        Its deviation is the pooled one where that may be used.
        """
        if self.base is None:
            return None
        found = paired_difference(_by_seed(row, name), _by_seed(self.base, name))
        pooled = self.pools.get(name)
        if found is None or not math.isfinite(found.mean) or not pooled or not pooled.is_usable:
            return found
        return pooled.widen(found)

    def reported_difference(self, row: RowSummary, name: str) -> float | None:
        """The same as the paper gives it; None where it has no figures."""
        ours: float | None = getattr(row.row.reported, name)
        base: float | None = getattr(self.base.row.reported, name) if self.base else None
        return None if ours is None or base is None else ours - base

    def perplexity_correlation(self) -> Correlation:
        """How far our perplexities order the rows as the paper's do."""
        return self._correlation(lambda r: (r.perplexity, r.row.reported.perplexity))

    def bleu_correlation(self) -> Correlation:
        """How far our BLEU orders the rows as the paper's does."""
        return self._correlation(lambda r: (r.bleu, r.row.reported.bleu))

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
    for row in plan.rows:
        if len(set(row.seeds)) < len(row.seeds):
            seeds = ", ".join(map(str, row.seeds))
            raise InputError(
                f"{directory / PLAN_FILE} lists a seed of row {row.name!r} twice ({seeds}): "
                "name each once"
            )
    found = [_row(row, base, plan, directory) for row in plan.rows if row.seeds]
    digests = Counter(x.data_digest for row in found for x in row.results if x.data_digest)
    if len(digests) > 1:  # figures of different data are not averaged
        data = digests.most_common(1)[0][0]
        found = [_row(row, base, plan, directory, data) for row in plan.rows if row.seeds]
    rows = tuple(found)
    names = MEASURES if any(len(row.results) > 1 for row in rows) else ()
    pools = {name: pool({row.row.name: _by_seed(row, name) for row in rows}) for name in names}
    return Summary(
        plan=plan,
        rows=rows,
        pools={name: found for name, found in pools.items() if found},
        strangers=_strangers(plan, directory),
    )


def _strangers(plan: Plan, directory: Path) -> tuple[str, ...]:
    known = {str(cell) for cell in plan.cells}
    finished = sorted(path.parent for path in directory.glob(f"*/seed-*/{RESULT_FILE}"))
    names = [path.relative_to(directory).as_posix() for path in finished if not number(path)]
    return tuple(name for name in names if name not in known)


def _by_seed(row: RowSummary, name: str) -> dict[int, float]:
    return {result.seed: float(getattr(result, name)) for result in row.results}


def _read(cell: Cell, plan: Plan, directory: Path, data: str | None) -> Result | Unfinished:
    """The result of a cell, if it is there, whole, of this cell, and of ``data`` if that is given;
    results from before data was noted count as of any.
    """
    path = locate(cell.directory(directory))
    experiment = plan.experiment(cell)
    try:
        result = load_result(path)
        if result is None:
            return Unfinished(cell, read_progress(path))
        check_configuration(path, experiment)  # by its config.json
    except InputError as error:
        return Unfinished(cell, None, str(error))
    if (result.experiment, result.seed) != (experiment.name, cell.seed):
        whose = f"{path / RESULT_FILE} is of {result.experiment}, seed {result.seed}"
        return Unfinished(cell, None, whose)
    if data is not None and result.data_digest not in (data, None):
        other = f"its data is {result.data_digest}, that of most runs {data}"
        return Unfinished(cell, None, other)
    return result


def _row(
    row: PlannedRow,
    base: dict[str, Value],
    plan: Plan,
    directory: Path,
    data: str | None = None,
) -> RowSummary:
    cells = {name: row.scaled.get(name, value) for name, value in base.items()}
    results: list[Result] = []
    unfinished: list[Unfinished] = []
    for seed in row.seeds:
        found = _read(Cell(row.name, seed), plan, directory, data)
        if isinstance(found, Unfinished):
            unfinished.append(found)
        else:
            results.append(found)
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
