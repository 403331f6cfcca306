"""A table's results as LaTeX."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from ablations.report.grid import Column, Grid, filled
from ablations.report.layout import TEMPLATES, render
from ablations.report.results import SAME
from ablations.report.scores import Score
from ablations.report.table_numbers import RowNumbers, TableNumbers
from experiments.records.progress import printable
from experiments.records.result import Measure
from transformer import formats

_BEYOND_NOISE = "\N{ASTERISK OPERATOR}"


def to_latex(table: TableNumbers, results: Grid) -> str:
    """A ``tabular`` for ``\\input``: the settings, our scores and the paper's, and the differences
    from the base with confidence intervals and marks; empty if no row has been run.
    """
    if not results.columns:
        return ""
    columns = [results.columns[0]]
    for column in results.columns[1:]:
        is_kept = column.style in ("setting", "ours", "theirs")
        if is_kept and not column.name.startswith("Δ"):
            columns.append(column)
    for measure in table.measures:
        # After our score and the paper's, which are in the same group.
        after = [n for n, column in enumerate(columns, 1) if column.group == measure.short]
        if after:
            columns[after[-1] : after[-1]] = filled(_differences(table.rows, measure))
    title = printable(f"{table.plan.title}, scale {table.plan.scale}")
    grid = Grid(columns, row_styles=results.row_styles)
    tops, heads = _heads(grid)
    notes = list(_notes(grid))
    return render(
        TEMPLATES / "table.tex.j2", title=title, grid=grid, tops=tops, heads=heads, notes=notes
    )


def _differences(rows: Sequence[RowNumbers], measure: Measure) -> list[Column]:
    """Δ with a mark where it is beyond noise, and its 95 % confidence interval."""
    scores = [
        row.scores[measure.name] if row.is_of_same_text and not row.is_base else None
        for row in rows
    ]
    return [
        Column("Δ", [_difference(score, measure) for score in scores], measure.short),
        Column("95 % CI", [_interval(score, measure) for score in scores], measure.short),
    ]


def _difference(score: Score | None, measure: Measure) -> str:
    if score is None or score.difference is None:
        return ""
    if score.is_equal:
        return SAME
    mark = _BEYOND_NOISE if score.difference.within_noise is False else ""
    return formats.difference(score.difference.mean, measure.digits) + mark


def _interval(score: Score | None, measure: Measure) -> str:
    if score is None or score.is_equal or not score.difference or not score.difference.interval:
        return ""
    ends = (formats.difference(end, measure.digits) for end in score.difference.interval)
    return f"[{', '.join(ends)}]"


def _heads(grid: Grid) -> tuple[list[tuple[str, int]], list[str]]:
    """The upper heads with the number of columns under each, and a head for each column."""
    ours = "ours" if "theirs" in [column.style for column in grid.columns] else "mean"
    counts = dict(grid.groups)
    tops = [(group if count > 1 else "", count) for group, count in grid.groups]
    heads = [
        column.name or (ours if counts[column.group] > 1 else column.group)
        for column in grid.columns
    ]
    return (tops if any(group for group, _ in tops) else []), heads


def _notes(grid: Grid) -> Iterator[str]:
    """Notes that explain the signs in the cells."""
    cells = [cell for column in grid.columns for cell in column.cells]
    if any("±" in cell for cell in cells):
        yield "±: standard deviation over seeds."
    if any(column.name == "95 % CI" for column in grid.columns):
        yield "Δ: difference from the base, paired by seed, with its 95 % confidence interval (CI)."
    if any(cell.endswith(_BEYOND_NOISE) for cell in cells):
        yield f"{_BEYOND_NOISE}: the confidence interval excludes 0."
    if SAME in cells:
        yield f"{SAME}: equal to the base by construction."
