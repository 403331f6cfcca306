"""Sentences on a table's rows: noise, agreement with the paper, seeds needed."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Sequence

from ablations.report.cells import needed
from ablations.report.numbers import Agreement, RowNumbers, TableNumbers
from ablations.report.pooling import dunnett
from ablations.report.statistics import Correlation
from experiments.records.result import Measure
from transformer import formats

_COUNTED = {
    Agreement.AGREES: "agree beyond noise",
    Agreement.WITHIN_NOISE: "within noise",
    Agreement.CONTRADICTS: "contradict beyond noise",
    Agreement.NONE_IN_PAPER: "no difference in the paper",
    Agreement.SAME_SIGN: "same sign",
    Agreement.OTHER_SIGN: "other sign",
}
_LISTED = (Agreement.CONTRADICTS, Agreement.NONE_IN_PAPER, Agreement.OTHER_SIGN)


def verdicts(table: TableNumbers) -> Iterator[str]:
    """The rows that differ from the base and agree with the paper, by measure."""
    others = [row for row in table.rows if not row.is_base and row.results]
    if others and table.base is None:
        planned = [row.name for row in table.plan.rows if not row.changes]
        remedy = f"run --rows {planned[0]} trains it" if planned else 'add row("base") to the table'
        yield f"No base was run, so there are no differences (Δ) to show: {remedy}."
    if not others or table.base is None or not table.base.results:
        return
    if not any(score.verdict for row in others for score in row.scores.values()):
        yield (
            "No row has two seeds in common with the base, so noise cannot be judged; "
            "run --seeds 1,2,3 adds seeds."
        )
    else:
        for measure in table.measures:
            yield f"{measure.title}: {_noise(others, measure)}."
            yield from _all_together(others, table.base, table, measure)
    for measure in table.measures:
        yield from _agreements(table.rows, measure)


def _noise(rows: Sequence[RowNumbers], measure: Measure) -> str:
    scores = {row.name: row.scores[measure.name] for row in rows}
    known = {name: score for name, score in scores.items() if score.verdict}
    if not known:
        return "noise cannot be judged"
    noise = [
        f"{name} {needed(score.difference)}"
        for name, score in known.items()
        if score.difference and score.difference.within_noise
    ]
    text = f"{len(noise)} of {len(known)} rows are within noise of the base"
    if noise:
        text += f"; approximate seeds needed to tell them apart: {', '.join(noise)}"
    if unknown := len(rows) - len(known):
        text += f"; for {unknown} more noise cannot be judged"
    return text


def _all_together(
    rows: Sequence[RowNumbers], base: RowNumbers, table: TableNumbers, measure: Measure
) -> Iterator[str]:
    """The rows that differ from the base with an error of 5 % over all of them together."""
    found = [(row, row.scores[measure.name].difference) for row in rows]
    pooled = [(row, x) for row, x in found if x and x.pooled_freedom]
    if not pooled:
        return
    theirs = {result.seed for result in base.results}
    seeds = tuple(frozenset(theirs & {x.seed for x in row.results}) for row, _ in pooled)
    critical = dunnett(seeds, table.pools[measure.name].freedom)
    noise = [x.name for x, y in pooled if abs(y.mean) <= critical * (y.standard_error or 0.0)]
    is_split = 0 < len(noise) < len(pooled)
    yield (
        f"{measure.title}, all rows together (Dunnett's test, 5 %: {critical:.2f} standard "
        f"errors): {len(pooled) - len(noise)} of {len(pooled)} differ from the base"
        f"{', all but ' + ', '.join(noise) if is_split else ''}."
    )


def _agreements(rows: Sequence[RowNumbers], measure: Measure) -> Iterator[str]:
    found: dict[Agreement, list[str]] = defaultdict(list)
    for row in rows:
        if agreement := row.scores[measure.name].agreement:
            found[agreement].append(row.name)
    counts = ", ".join(
        f"{words} {len(found[kind])}" + (f" ({', '.join(found[kind])})" if kind in _LISTED else "")
        for kind, words in _COUNTED.items()
        if kind in found
    )
    if counts:
        total = sum(map(len, found.values()))
        yield f"{measure.title}, sign of Δ compared with the paper's, {total} row(s): {counts}."


def order_of_rows(table: TableNumbers) -> str:
    """A sentence on the rank correlations with the paper; empty without a row in both."""
    known = [
        f"{measure.label} {_correlation(table.correlations[measure.name])}"
        for measure in table.measures
        if table.correlations[measure.name].count
    ]
    if not known:
        return ""
    return f"Spearman's rank correlation with the paper's rows: {', '.join(known)}."


def _correlation(correlation: Correlation) -> str:
    rows = "1 row" if correlation.count == 1 else f"{correlation.count} rows"
    if correlation.value is None:
        return f"undefined ({rows})"
    value = formats.difference(correlation.value, 2)
    if correlation.interval is None:
        return f"{value} ({rows})"
    low, high = (formats.difference(end, 2) for end in correlation.interval)
    return f"{value} ({rows}, 95 % in {low} to {high})"
