"""What the seeds of a table show about its rows: noise, agreement with the paper, seeds needed."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from itertools import compress

from ablations.report.page import Column, Table
from ablations.report.pooling import dunnett
from ablations.report.statistics import (
    MAX_SEEDS,
    Difference,
    Estimate,
    required_seeds,
)
from ablations.report.summary import RowSummary, Summary
from experiments.run.measures import Measure
from transformer import formats

# Marks a difference that is within noise.
NOISE = "~"

AGREES, CONTRADICTS, WITHIN_NOISE = "agrees", "contradicts", "within noise"
# Without a difference in the paper, and without an interval of ours.
_NONE, _SAME, _OTHER = "none in paper", "same sign", "other sign"
_COUNTED = {
    AGREES: "agree beyond noise",
    WITHIN_NOISE: "within noise",
    CONTRADICTS: "contradict beyond noise",
    _NONE: "no difference in the paper",
    _SAME: "same sign",
    _OTHER: "other sign",
}
_HEADS = ("95 %", "Δ, 95 %", "verdict", "sign as in paper", "seeds needed")
_LISTED = (CONTRADICTS, _NONE, _OTHER)


def agreement(summary: Summary, row: RowSummary, name: str) -> str:
    """How the sign of a row's difference from the base compares with the paper's; "" if unknown.

    Args:
        name: of a measure
    """
    ours, paper = summary.difference(row, name), summary.reported_difference(row, name)
    if ours is None or paper is None or ours.mean != ours.mean:
        return ""
    if ours.within_noise:
        return WITHIN_NOISE
    if not paper:
        return _NONE
    same = ours.mean * paper > 0
    if ours.interval is None:
        return _SAME if same else _OTHER
    return AGREES if same else CONTRADICTS


def verdicts(summary: Summary) -> Iterator[str]:
    """Which rows differ from the base and agree with the paper, in a few sentences per measure."""
    others = [row for row in summary.rows if not row.is_base and row.results]
    if others and summary.base is None:
        planned = [row.name for row in summary.plan.rows if not row.changes]
        remedy = f"run --rows {planned[0]} trains it" if planned else 'add row("base") to the table'
        yield f"No base was run, so there are no differences (Δ) to show: {remedy}."
    if not others or summary.base is None or not summary.base.results:
        return
    differences = [summary.difference(row, x.name) for row in others for x in summary.measures]
    if all(found is None or found.interval is None for found in differences):
        yield (
            "No row has two seeds in common with the base, so noise cannot be judged; "
            "run --seeds 1,2,3 adds seeds."
        )
    else:
        for measure in summary.measures:
            rows = {x.row.name: summary.difference(x, measure.name) for x in others}
            yield f"{measure.title}: {_noise(rows)}."
            yield from _family_wise(summary, measure)
    for measure in summary.measures:
        yield from _agreements(summary, measure)


def _noise(rows: dict[str, Difference | None]) -> str:
    known = {name: x for name, x in rows.items() if x and x.within_noise is not None}
    if not known:
        return "noise cannot be judged"
    noise = [f"{name} {needed(x)}" for name, x in known.items() if x.within_noise]
    text = f"{len(noise)} of {len(known)} rows are within noise of the base"
    if noise:
        text += f"; approximate seeds needed to tell them apart: {', '.join(noise)}"
    if unknown := len(rows) - len(known):
        text += f"; for {unknown} more noise cannot be judged"
    return text


def _family_wise(summary: Summary, measure: Measure) -> Iterator[str]:
    """Which rows differ from the base with an error of 5 % over all of them together."""
    found = [(x, summary.difference(x, measure.name)) for x in summary.rows if not x.is_base]
    pooled = [(row, x) for row, x in found if x and x.pooled_freedom]
    if not pooled or summary.base is None:
        return
    base = {result.seed for result in summary.base.results}
    seeds = tuple(frozenset(base & {result.seed for result in row.results}) for row, _ in pooled)
    critical = dunnett(seeds, summary.pools[measure.name].freedom)
    noise = [x.row.name for x, y in pooled if abs(y.mean) <= critical * (y.standard_error or 0.0)]
    is_split = 0 < len(noise) < len(pooled)
    yield (
        f"{measure.title}, all rows together (Dunnett's test, 5 %: {critical:.2f} standard "
        f"errors): {len(pooled) - len(noise)} of {len(pooled)} differ from the base"
        f"{', all but ' + ', '.join(noise) if is_split else ''}."
    )


def _agreements(summary: Summary, measure: Measure) -> Iterator[str]:
    found: dict[str, list[str]] = defaultdict(list)
    for row in summary.rows:
        if not row.is_base and (kind := agreement(summary, row, measure.name)):
            found[kind].append(row.row.name)
    counts = ", ".join(
        f"{words} {len(found[kind])}" + (f" ({', '.join(found[kind])})" if kind in _LISTED else "")
        for kind, words in _COUNTED.items()
        if kind in found
    )
    if counts:
        total = sum(map(len, found.values()))
        yield f"{measure.title}, sign of Δ compared with the paper's, {total} row(s): {counts}."


def seeds_table(summary: Summary) -> Table:
    """Intervals and verdicts of all rows with a result; empty if no row has two."""
    others = any(row.results and not row.is_base for row in summary.rows)
    shown = (True, others, others, others and summary.plan.is_compared, others)
    heads = list(compress(_HEADS, shown))
    columns = [Column("row"), Column("seeds")]
    columns += [Column(head, measure.short) for measure in summary.measures for head in heads]
    rows: list[tuple[str, ...]] = []
    if any(len(row.results) > 1 for row in summary.rows):
        for row in summary.rows:
            if row.results:
                paired = summary.difference(row, summary.measures[-1].name)
                cells = [
                    cell
                    for x in summary.measures
                    for cell in compress(_cells(summary, row, x), shown)
                ]
                rows.append((row.row.name, str(paired.count if paired else 0), *cells))
    return Table(columns=tuple(columns), rows=tuple(rows))


def _cells(summary: Summary, row: RowSummary, measure: Measure) -> tuple[str, ...]:
    name, digits = measure.name, measure.digits
    own = row.scores.get(name)
    first = interval(own, digits) if own else formats.MISSING
    if row.is_base:
        return first, "", "", "", ""
    found, sign = summary.difference(row, name), agreement(summary, row, name)
    if found is None:
        return first, formats.MISSING, "", "", ""
    bounds = interval(found, digits, signed=True)
    if found.within_noise is None:
        return first, bounds, "", sign, ""
    better = (found.mean < 0) == (measure.direction == "minimize")
    verdict = WITHIN_NOISE if found.within_noise else "better" if better else "worse"
    return first, bounds, verdict, sign, needed(found)


def interval(value: Estimate, digits: int, *, signed: bool = False) -> str:
    """The 95 % interval of a mean, ``81.2 to 82.3``, or why there is none."""
    if value.interval is None:
        return "one seed" if value.count == 1 else "not finite"
    write = formats.difference if signed else formats.number
    return " to ".join(write(end, digits) for end in value.interval)


def needed(value: Difference) -> str:
    """About how many seeds a test needs, ``14`` or ``more than 100``."""
    count = required_seeds(value)
    return f"more than {MAX_SEEDS}" if count is None else str(count)
