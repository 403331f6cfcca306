"""The figure of a table: the coordinates of its points, which a template draws."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from ablations.report.summary import Summary
from ablations.report.verdicts import AGREES, CONTRADICTS, agreement

_LEFT, _RIGHT, _TOP, _BOTTOM = 40.0, 400.0, 12.0, 300.0
_LABEL_WIDTH, _LABEL_HEIGHT = 50.0, 9.0


@dataclass(frozen=True, kw_only=True, slots=True)
class Point:
    """A row; ``low`` and ``high`` are the ends of its interval, ``label`` is the y of its name.

    ``style`` is a class of ``report.css``.
    """

    name: str
    style: str
    x: float
    y: float
    low: float
    high: float
    label: float


@dataclass(frozen=True, kw_only=True, slots=True)
class Scatter:
    """Differences from the base, the paper's from left to right and ours upwards.

    Ticks pair a coordinate with a label; ``zero`` is the point of no difference.
    """

    box: tuple[float, float, float, float]
    x_ticks: tuple[tuple[float, str], ...]
    y_ticks: tuple[tuple[float, str], ...]
    zero: tuple[float, float]
    points: tuple[Point, ...]


def scatter(summary: Summary, name: str) -> Scatter | None:
    """The figure of ``perplexity`` or ``bleu``; None if there is nothing to compare."""
    known = [
        (row, paper, ours)
        for row in summary.rows
        if not row.is_base
        and (paper := summary.reported_difference(row, name)) is not None
        and (ours := summary.difference(row, name)) is not None
        and math.isfinite(ours.mean)
    ]
    if not known:
        return None
    ends = [ours.interval or (ours.mean, ours.mean) for *_, ours in known]
    left, right = _limits([paper for _, paper, _ in known], [])
    low, high = _limits([ours.mean for *_, ours in known], [end for both in ends for end in both])

    def across(value: float) -> float:
        return round(_LEFT + (_RIGHT - _LEFT) * (value - left) / (right - left), 1)

    def up(value: float) -> float:
        share = (min(max(value, low), high) - low) / (high - low)
        return round(_BOTTOM - (_BOTTOM - _TOP) * share, 1)

    points: list[Point] = []
    for (row, paper, ours), (bottom, top) in sorted(
        zip(known, ends, strict=True), key=lambda item: item[0][2].mean
    ):
        kind = agreement(summary, row, name)
        x, y = across(paper), up(ours.mean)
        # Names are placed from the bottom upwards, each above those near it.
        near = [p.label - _LABEL_HEIGHT for p in points if abs(p.x - x) < _LABEL_WIDTH]
        style = {AGREES: "ours", CONTRADICTS: "contradicts"}.get(kind, "theirs")
        points.append(
            Point(
                name=row.row.name,
                style=style,
                x=x,
                y=y,
                low=up(bottom),
                high=up(top),
                label=min([y, *near]),
            )
        )
    return Scatter(
        box=(_LEFT, _TOP, _RIGHT, _BOTTOM),
        x_ticks=tuple((across(tick), f"{tick:g}") for tick in ticks(left, right)),
        y_ticks=tuple((up(tick), f"{tick:g}") for tick in ticks(low, high)),
        zero=(across(0.0), up(0.0)),
        points=tuple(points),
    )


def _limits(points: Sequence[float], ends: Sequence[float]) -> tuple[float, float]:
    """The ends of an axis that shows 0, all points, and their intervals unless those are long."""
    low, high = min(0.0, *points), max(0.0, *points)
    reach = (high - low or 1.0) / 2
    low, high = max(min([low, *ends]), low - reach), min(max([high, *ends]), high + reach)
    margin = (high - low or 1.0) * 0.06
    return low - margin, high + margin


def ticks(low: float, high: float) -> list[float]:
    """Two to five round values between ``low`` and ``high``.

    Example:
        >>> ticks(23.5, 26.5)
        [24.0, 25.0, 26.0]
    """
    unit = 10.0 ** math.floor(math.log10(high - low))
    step = next(
        unit * part for part in (0.2, 0.5, 1.0, 2.0, 5.0) if (high - low) / (unit * part) < 5
    )
    first = math.ceil(low / step)
    return [round(step * index, 10) for index in range(first, math.floor(high / step) + 1)]
