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

    @property
    def group(self) -> str:
        """The letter of the row in the paper's Table 3, or what stands before the first dash."""
        return self.row.split("-", 1)[0]


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
    groups = list(dict.fromkeys(curve.group for curve in drawn if curve.row != base))
    if not drawn:
        return None
    behind = _records([curve for curve in drawn if curve.row == base])
    panels = [
        _panel(group, _records([x for x in drawn if x.group == group and x.row != base]), behind)
        for group in groups or [""]
    ]
    return figure(
        "Learning curves, the base in grey",
        columns=3,
        concat=panels,
        resolve={"scale": {"color": "independent", "y": "shared"}},
    )


def _records(curves: Sequence[Curve]) -> list[Record]:
    return [
        {"row": curve.row, "seed": curve.seed, "step": step, "perplexity": value}
        for curve in curves
        for step, value in curve.points
    ]


def _panel(group: str, own: list[Record], behind: list[Record]) -> Spec:
    encoding = {
        "x": axis("step", "optimiser step"),
        "y": axis("perplexity", "validation perplexity", log=True),
        "detail": {"field": "seed"},
        "tooltip": tooltip("row", "seed", "step", "perplexity"),
    }
    legend = {"orient": "bottom", "columns": 3, "title": None}
    colour = {"field": "row", "legend": legend, "scale": {"range": COLOURS}}
    # Vega draws the legend of no rows infinitely large.
    coloured = (
        [
            {
                "data": {"values": own},
                "mark": {"type": "line", "strokeWidth": 1.5},
                "encoding": {**encoding, "color": colour},
            }
        ]
        if own
        else []
    )
    return {
        "title": f"rows {group}" if len(group) == 1 else group,
        "width": 230,
        "height": 190,
        "layer": [
            {
                "data": {"values": behind},
                "mark": {"type": "line", "color": GREY, "strokeWidth": 3, "opacity": 0.55},
                "encoding": encoding,
            },
            *coloured,
        ],
    }
