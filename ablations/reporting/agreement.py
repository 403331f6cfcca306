"""Whether the rows differ from the base as the paper's do."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator

from ablations.reporting.summary import MEASURES, RowSummary, Summary

AGREES, CONTRADICTS, WITHIN_NOISE = "agrees", "contradicts", "within noise"
_EQUAL = "paper has none"
# What a difference without an interval can show.
_SAME, _OTHER = "same sign", "other sign"
_PHRASES = {
    AGREES: "agree beyond noise",
    WITHIN_NOISE: "are within noise",
    CONTRADICTS: "contradict it beyond noise",
    _EQUAL: "differ where the paper's do not",
    _SAME: "have the same sign",
    _OTHER: "have the other sign",
}
_NAMED = (CONTRADICTS, _EQUAL, _OTHER)


def agreement(summary: Summary, row: RowSummary, name: str) -> str:
    """How the sign of a row's difference to the base relates to the paper's; empty if unknown.

    Args:
        summary: of the table
        row: one of its rows
        name: ``perplexity`` or ``bleu``
    """
    ours, paper = summary.difference(row, name), summary.reported_difference(row, name)
    if ours is None or paper is None or ours.mean != ours.mean:
        return ""
    if ours.within_noise:
        return WITHIN_NOISE
    same = ours.mean * paper > 0
    if ours.interval is None:
        return _SAME if same else _OTHER
    return AGREES if same else CONTRADICTS if paper else _EQUAL


def agreements(summary: Summary) -> Iterator[str]:
    """How many rows agree with the paper, in a sentence for each measure."""
    for name, label in MEASURES.items():
        found: dict[str, list[str]] = defaultdict(list)
        for row in summary.rows:
            if not row.is_base and (kind := agreement(summary, row, name)):
                found[kind].append(row.row.name)
        counts = ", ".join(
            f"{len(found[kind])} {phrase}"
            + (f" ({', '.join(found[kind])})" if kind in _NAMED else "")
            for kind, phrase in _PHRASES.items()
            if kind in found
        )
        if counts:
            total = sum(map(len, found.values()))
            rows = "1 row" if total == 1 else f"{total} rows"
            yield f"{label}, sign of Δ against that of the paper's Δ: of {rows} {counts}."
