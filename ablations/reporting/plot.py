"""Where the dots of a report's figures lie; the template draws them."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from ablations import formats
from ablations.reporting.summary import RowSummary
from ablations.statistics.estimates import Estimate

_LETTER, _PANEL, _GAP, _LINE, _TOP = 6, 150, 24, 18, 40


@dataclass(frozen=True, slots=True)
class Dot:
    """A row's figure; ``low`` and ``high`` are the ends of its spread."""

    x: float
    y: float
    low: float
    high: float
    text: str


@dataclass(frozen=True, kw_only=True, slots=True)
class Panel:
    """One axis. ``ticks`` pairs a place with its label; ``base`` is where the base row lies."""

    title: str
    left: float
    right: float
    ticks: tuple[tuple[float, str], ...]
    base: float | None
    dots: tuple[Dot, ...]


@dataclass(frozen=True, kw_only=True, slots=True)
class Figure:
    """Ours and the paper's side by side, a line for each row; ``names`` pairs a height, a row."""

    title: str
    width: float
    height: float
    names: tuple[tuple[float, str], ...]
    panels: tuple[Panel, ...]


def figure(title: str, name: str, rows: Sequence[RowSummary], digits: int) -> Figure | None:
    """The figure of ``perplexity`` or ``bleu``; None where there is nothing to compare."""
    ours: list[Estimate | None] = [getattr(row, name) for row in rows]
    reported: list[float | None] = [getattr(row.row.reported, name) for row in rows]
    paper = [None if value is None else Estimate(value, None, 1) for value in reported]
    left = 18 + _LETTER * max(len(row.row.name) for row in rows)
    base = next((index for index, row in enumerate(rows) if row.is_base), None)
    panels = [
        panel
        for label, start, estimates in (
            ("ours", left, ours),
            ("the paper", left + _PANEL + _GAP, paper),
        )
        if (panel := _panel(label, start, estimates, base, digits)) is not None
    ]
    if not panels or panels[0].title != "ours":
        return None
    return Figure(
        title=title,
        width=left + 2 * _PANEL + _GAP + 8,
        height=_TOP + _LINE * len(rows) + 8,
        names=tuple((_height(index), row.row.name) for index, row in enumerate(rows)),
        panels=tuple(panels),
    )


def _panel(
    title: str, left: float, estimates: Sequence[Estimate | None], base: int | None, digits: int
) -> Panel | None:
    known = [(i, e) for i, e in enumerate(estimates) if e and math.isfinite(e.mean)]
    if not known:
        return None
    low = min(e.mean - (e.deviation or 0.0) for _, e in known)
    high = max(e.mean + (e.deviation or 0.0) for _, e in known)
    margin = (high - low or abs(high) or 1.0) * 0.06
    low, high = low - margin, high + margin

    def place(value: float) -> float:
        return round(left + _PANEL * (value - low) / (high - low), 1)

    dots = {
        i: Dot(
            x=place(e.mean),
            y=_height(i),
            low=place(e.mean - (e.deviation or 0.0)),
            high=place(e.mean + (e.deviation or 0.0)),
            text=formats.estimate(e, digits),
        )
        for i, e in known
    }
    return Panel(
        title=title,
        left=left,
        right=left + _PANEL,
        ticks=tuple((place(tick), f"{tick:g}") for tick in ticks(low, high)),
        base=dots[base].x if base in dots else None,
        dots=tuple(dots.values()),
    )


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


def _height(index: int) -> float:
    return _TOP + _LINE * (index + 0.5)
