"""Whether the rows differ from the base as the paper's do."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator

from ablations.report.summary import MEASURES, RowSummary, Summary

AGREES, CONTRADICTS, WITHIN_NOISE = "agrees", "contradicts", "within noise"
# Where the paper's row does not differ, and what a difference without an interval can show.
_NONE, _SAME, _OTHER = "none in paper", "same sign", "other sign"
_COUNTED = {
    AGREES: "agree beyond noise",
    WITHIN_NOISE: "within noise",
    CONTRADICTS: "contradict beyond noise",
    _NONE: "no difference in the paper",
    _SAME: "same sign",
    _OTHER: "other sign",
}
_NAMED = (CONTRADICTS, _NONE, _OTHER)


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
    if not paper:
        return _NONE
    same = ours.mean * paper > 0
    if ours.interval is None:
        return _SAME if same else _OTHER
    return AGREES if same else CONTRADICTS


def agreements(summary: Summary) -> Iterator[str]:
    """How many rows agree with the paper, in a sentence for each measure."""
    for name, label in MEASURES.items():
        found: dict[str, list[str]] = defaultdict(list)
        for row in summary.rows:
            if not row.is_base and (kind := agreement(summary, row, name)):
                found[kind].append(row.row.name)
        counts = ", ".join(
            f"{words} {len(found[kind])}"
            + (f" ({', '.join(found[kind])})" if kind in _NAMED else "")
            for kind, words in _COUNTED.items()
            if kind in found
        )
        if counts:
            total = sum(map(len, found.values()))
            yield f"{label}, sign of Δ beside that of the paper's Δ, {total} row(s): {counts}."
