"""Learning curves: read from the runs' ``metrics.csv``, drawn by group of rows."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from ablations.figures.style import COLOURS, GREY, Record, Spec, axis, figure, tooltip
from experiments.run.results import valid_perplexities

_MAX_POINTS = 150  # of a curve in a figure, which is more than its pixels show


@dataclass(frozen=True, kw_only=True, slots=True)
class Curve:
    """Validation perplexity by optimiser step of one run."""

    row: str
    seed: int
    points: tuple[tuple[int, float], ...]


def group_of(row: str) -> str:
    """The letter of a row of Table 3, or what stands before the first dash of its name."""
    return row.split("-", 1)[0]


def read_curve(directory: Path, row: str, seed: int) -> Curve:
    """The curve of the run in ``directory``, thinned; empty before the first validation."""
    known = [
        (step, value)
        for step, value in sorted(valid_perplexities(directory).items())
        if math.isfinite(value) and value > 0
    ]
    stride = math.ceil(len(known) / _MAX_POINTS) or 1
    kept = known[::-stride][::-1]  # always with the last one
    return Curve(row=row, seed=seed, points=tuple(kept))


def draw_curves(curves: Sequence[Curve], base: str | None) -> Spec | None:
    """A panel for each group of rows, with the base's curves in grey behind; None without a point.

    Args:
        curves: of any number of rows and seeds
        base: the name of the base's row
    """
    drawn = [curve for curve in curves if curve.points]
    if not drawn:
        return None
    behind = [curve for curve in drawn if curve.row == base]
    others = [curve for curve in drawn if curve.row != base]
    panels = [
        _panel(group, [curve for curve in others if group_of(curve.row) == group], behind)
        for group in dict.fromkeys(group_of(curve.row) for curve in others)
    ]
    return figure(
        "Learning curves, the base in grey",
        columns=3,
        concat=panels or [_panel(base or "", behind, [])],
        resolve={"scale": {"color": "independent", "y": "shared"}},
    )


def _records(curves: Sequence[Curve]) -> list[Record]:
    return [
        {"row": curve.row, "seed": curve.seed, "step": step, "perplexity": value}
        for curve in curves
        for step, value in curve.points
    ]


def _panel(group: str, own: Sequence[Curve], behind: Sequence[Curve]) -> Spec:
    encoding = {
        "x": axis("step", "optimiser step"),
        "y": axis("perplexity", "validation perplexity", log=True),
        "detail": {"field": "seed"},
        "tooltip": tooltip("row", "seed", "step", "perplexity"),
    }
    legend = {"orient": "bottom", "columns": 3, "title": None}
    colour = {"field": "row", "legend": legend, "scale": {"range": COLOURS}}
    line: Spec = {"type": "line", "strokeWidth": 1.5}
    grey: Spec = {"type": "line", "strokeWidth": 3, "color": GREY, "opacity": 0.55}
    layers = [
        {"data": {"values": _records(curves)}, "mark": mark, "encoding": {**encoding, **more}}
        for curves, mark, more in ((behind, grey, {}), (own, line, {"color": colour}))
        if curves
    ]
    title = f"rows {group}" if len(group) == 1 else group
    return {"title": title, "width": 230, "height": 190, "layer": layers}
