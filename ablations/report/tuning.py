"""Show how a tuned table chose its learning rates."""

from __future__ import annotations

import math
from collections.abc import Mapping

from ablations.folder import TableFolder
from ablations.folder.tuning import Tuned, candidate
from ablations.report.grid import Column, Grid
from ablations.report.numbers import compute_numbers
from ablations.report.results import difference
from ablations.report.table_numbers import RowNumbers, TableNumbers
from experiments.records.result import MEASURES
from transformer import formats

_MEASURE = MEASURES["perplexity"]
_EDGE = "*"  # marks a factor next to which one more was tried


def tuning_grid(table: TableNumbers, folder: TableFolder) -> Grid:
    """Each row's perplexity at each factor of its learning rate, the chosen factor, how many
    factors reach the tuned base, and the difference from the base before and after tuning; empty
    for a table that is not tuned.
    """
    tuned, tuning = folder.tuned, folder.tuning
    rows = [row for row in table.rows if row.name in tuned]
    if tuning is None or not rows:
        return Grid([])
    # The candidates at a factor of 1 are the rows as declared, the base among them.
    as_declared = compute_numbers(tuning.only({candidate(row, 1.0) for row in tuned}))
    untuned = {row.name: row for row in as_declared.rows}
    columns = [Column("row", [row.name for row in rows])]
    factors = sorted({factor for each in tuned.values() for factor in each.perplexities})
    for factor in factors:
        cells = [_perplexity(tuned[row.name], factor) for row in rows]
        columns.append(Column(f"\N{MULTIPLICATION SIGN} {factor:g}", cells, _MEASURE.short))
    chosen = [_factor(tuned[row.name]) for row in rows]
    columns.append(Column("factor", chosen))
    columns.append(Column("reach the base", _reach(rows, tuned, table.base)))
    before = [_difference(untuned.get(candidate(row.name, 1.0))) for row in rows]
    after = [_difference(row) for row in rows]
    columns.append(Column("Δ untuned", before, _MEASURE.short))
    columns.append(Column("Δ tuned", after, _MEASURE.short))
    return Grid(columns)


def _perplexity(tuned: Tuned, factor: float) -> str:
    value = tuned.perplexities.get(factor)
    if value is None:
        return ""
    return formats.number(value, _MEASURE.digits) if math.isfinite(value) else "diverged"


def _factor(tuned: Tuned) -> str:
    return f"{tuned.factor:g}{_EDGE if tuned.is_at_edge else ''}"


def _reach(
    rows: list[RowNumbers], tuned: Mapping[str, Tuned], base: RowNumbers | None
) -> list[str]:
    """How many factors of each row end at or below the mean perplexity of the tuned base."""
    ours = base and base.scores[_MEASURE.name].ours
    if not ours:
        return [""] * len(rows)
    cells: list[str] = []
    for row in rows:
        perplexities = tuned[row.name].perplexities.values()
        reached = sum(value <= ours.mean for value in perplexities)
        cells.append(f"{reached} of {len(perplexities)}")
    return cells


def _difference(row: RowNumbers | None) -> str:
    return "" if row is None or row.is_base else difference(row.scores[_MEASURE.name])
