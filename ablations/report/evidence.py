"""What the seeds of a table can tell of its rows, in words: intervals, noise, seeds to tell."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from ablations.report.agreement import WITHIN_NOISE, agreement, agreements
from ablations.report.estimates import MOST_SEEDS, Difference, Estimate, seeds_to_tell
from ablations.report.pooled import dunnett
from ablations.report.summary import MEASURES, RowSummary, Summary
from transformer import formats

PERPLEXITY_DIGITS, BLEU_DIGITS = 3, 1
# Set behind a difference that is within noise.
NOISE = "~"
EVIDENCE = ("95 %", "Δ, 95 %", "verdict", "sign as in paper", "seeds to tell")


@dataclass(frozen=True, kw_only=True, slots=True)
class EvidenceLine:
    """A row that has results. ``seeds`` are those the base has too; the rest is ``EVIDENCE``."""

    name: str
    seeds: str
    perplexity: tuple[str, ...]
    bleu: tuple[str, ...]


def evidence(summary: Summary) -> Iterator[EvidenceLine]:
    """A line for each row with a result, none where no row has two."""
    if not any(len(row.results) > 1 for row in summary.rows):
        return
    for row in summary.rows:
        if row.results:
            paired = summary.difference(row, "bleu")
            yield EvidenceLine(
                name=row.row.name,
                seeds=str(paired.count if paired else 0),
                perplexity=_cells(summary, row, "perplexity", PERPLEXITY_DIGITS),
                bleu=_cells(summary, row, "bleu", BLEU_DIGITS),
            )


def verdicts(summary: Summary) -> Iterator[str]:
    """Which rows are within noise of the base, in a sentence for each measure."""
    others = [row for row in summary.rows if not row.is_base and row.results]
    if others and summary.base is None:
        planned = [row.name for row in summary.plan.rows if not row.changes]
        remedy = f"run --rows {planned[0]} trains it" if planned else 'add row("base") to the table'
        yield f"No base was run, so there are no differences (Δ) to show: {remedy}."
    if not others or summary.base is None or not summary.base.results:
        return
    differences = [summary.difference(row, "bleu") for row in others]
    if all(found is None or found.interval is None for found in differences):
        yield (
            "No row has two seeds in common with the base, so nothing can be said of noise; "
            "run --seeds 1,2,3 adds seeds."
        )
    else:
        for name, label in MEASURES.items():
            yield f"{label}: {_verdict([(row, summary.difference(row, name)) for row in others])}."
            yield from _at_once(summary, name, label)
    yield from agreements(summary)


def _at_once(summary: Summary, name: str, label: str) -> Iterator[str]:
    """Which rows differ from the base with an error of 5 % over all of them together."""
    found = [(row, summary.difference(row, name)) for row in summary.rows if not row.is_base]
    pooled = [(row, x) for row, x in found if x and x.pooled_freedom]
    if not pooled or summary.base is None:
        return
    base = {result.seed for result in summary.base.results}
    seeds = tuple(frozenset(base & {result.seed for result in row.results}) for row, _ in pooled)
    reach = dunnett(seeds, summary.pools[name].freedom)
    noise = [row.row.name for row, x in pooled if abs(x.mean) <= reach * (x.error or 0.0)]
    yield (
        f"{label}, all rows at once (Dunnett's test, 5 %: {reach:.2f} standard errors): of "
        f"{len(pooled)}, {len(pooled) - len(noise)} differ from the base"
        f"{', all but ' + ', '.join(noise) if noise else ''}."
    )


def difference(value: Difference | None, digits: int) -> str:
    """A signed difference, marked where it is within noise: ``+0.4~``."""
    text = formats.difference(value.mean if value else None, digits)
    return text + NOISE if value and value.within_noise else text


def interval(value: Estimate, digits: int, *, signed: bool = False) -> str:
    """The 95 % interval of a mean, ``81.2 to 82.3``; where there is none, why."""
    if value.interval is None:
        return "one seed" if value.count == 1 else "not finite"
    write = formats.difference if signed else formats.number
    return " to ".join(write(end, digits) for end in value.interval)


def needed(value: Difference) -> str:
    """About how many seeds would tell a row from the base, ``14`` or ``more than 100``."""
    count = seeds_to_tell(value)
    return f"more than {MOST_SEEDS}" if count is None else str(count)


def _cells(summary: Summary, row: RowSummary, name: str, digits: int) -> tuple[str, ...]:
    own: Estimate = getattr(row, name)
    first = interval(own, digits)
    if row.is_base:
        return first, "", "", "", ""
    found, sign = summary.difference(row, name), agreement(summary, row, name)
    if found is None:
        return first, formats.MISSING, "", "", ""
    reach = interval(found, digits, signed=True)
    if found.within_noise is None:
        return first, reach, "", sign, ""
    better = (found.mean < 0) == (name == "perplexity")
    side = WITHIN_NOISE if found.within_noise else "better" if better else "worse"
    return first, reach, side, sign, needed(found)


def _verdict(rows: Sequence[tuple[RowSummary, Difference | None]]) -> str:
    known = [(row.row.name, x) for row, x in rows if x and x.within_noise is not None]
    noise = [f"{name} {needed(x)}" for name, x in known if x.within_noise]
    parts = [f"rows within noise of the base, {len(noise)} of {len(known)}"] if known else []
    if noise:
        parts.append(f"to tell them from it takes about this many seeds: {', '.join(noise)}")
    if unknown := len(rows) - len(known):
        parts.append(f"of {unknown} more nothing can be said" if known else "nothing can be said")
    return "; ".join(parts)
