"""Learning curves, in one panel for each group of rows."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from statistics import fmean

from experiments.figures import style
from experiments.figures.style import Record, Spec
from experiments.records.run import Run


@dataclass(frozen=True, kw_only=True, slots=True)
class Curve:
    """Validation perplexity by step, of one run or the mean of several; ``seeds`` in words."""

    row: str
    seeds: str
    points: tuple[tuple[int, float], ...]


def group_of(row: str) -> str:
    """A row's group: what stands before the first dash of its name, in Table 3 a letter."""
    return row.split("-", 1)[0]


def curve_of(run: Run) -> Curve:
    """The curve of a run; empty before the first validation."""
    curve = run.curve
    # Only what a logarithmic axis can show.
    points = tuple((step, curve[step]) for step in sorted(curve) if 0 < curve[step] < math.inf)
    return Curve(row=run.row, seeds=str(run.seed), points=points)


def mean_curve(curves: Sequence[Curve]) -> Curve:
    """The mean of a row's curves, at each step over the runs that reached it."""
    values: dict[int, list[float]] = defaultdict(list)
    for curve in curves:
        for step, value in curve.points:
            values[step].append(value)
    seeds = ", ".join(curve.seeds for curve in curves if curve.points)
    points = tuple((step, fmean(values[step])) for step in sorted(values))
    return Curve(row=curves[0].row, seeds=seeds, points=points)


def draw_curves(curves: Sequence[Curve], base: str | None, *, by_name: bool) -> Spec | None:
    """A panel for each group of rows, with the base's curves in grey behind; None without a point.

    Args:
        curves: the curves of any number of rows and seeds
        base: the name of the base's row, which is drawn like any other row if it is alone
        by_name: group rows by their names, as the paper does
    """
    drawn = [curve for curve in curves if curve.points]
    if not drawn:
        return None
    behind = [curve for curve in drawn if curve.row == base]
    others = [curve for curve in drawn if curve.row != base]
    if not others:
        behind, others = [], drawn
    titles = _panel_titles(list(dict.fromkeys(curve.row for curve in others)), by_name)
    panels: dict[str, list[Curve]] = defaultdict(list)
    for curve in others:
        panels[titles[curve.row]].append(curve)
    return style.figure(
        "Learning curves, the base in grey" if behind else "Learning curves",
        columns=3,
        concat=[_panel(title, own, behind) for title, own in panels.items()],
        resolve={"scale": {"color": "independent", "strokeDash": "independent", "y": "shared"}},
    )


def _panel_titles(rows: Sequence[str], by_name: bool) -> dict[str, str]:
    """The title of each row's panel: the row's group, or the range of rows that share a panel."""
    titles: dict[str, str] = {}
    if by_name:
        for row in rows:
            group = group_of(row)
            titles[row] = f"rows {group}" if len(group) == 1 else group
        return titles
    count = len(style.COLOURS)
    for start in range(0, len(rows), count):
        part = rows[start : start + count]
        title = part[0] if len(part) == 1 else f"{part[0]} to {part[-1]}"
        titles |= dict.fromkeys(part, title)
    return titles


def _panel(title: str, own: Sequence[Curve], behind: Sequence[Curve]) -> Spec:
    x = style.axis("step", "optimizer step")
    x["scale"]["nice"] = False  # a nice axis would begin far below 0
    encoding = {
        "x": x,
        "y": style.axis("perplexity", "validation perplexity", log=True),
        "detail": {"field": "seeds"},
        "tooltip": style.tooltip("row", "seeds", "step", "perplexity"),
    }
    # From the seventh row on, colours repeat with dashed lines.
    dashes = [[1, 0]] * len(style.COLOURS) + [[4, 2]] * len(style.COLOURS)
    legend: Spec = {"orient": "bottom", "columns": 3, "title": None, "symbolType": "stroke"}
    by_row = {"field": "row", "legend": legend}
    rows = list(dict.fromkeys(curve.row for curve in own))  # else the legend is alphabetical
    looks = {
        "color": {**by_row, "scale": {"domain": rows, "range": style.COLOURS}},
        "strokeDash": {**by_row, "scale": {"domain": rows, "range": dashes}},
    }
    layers: list[Spec] = []
    if behind:
        grey: Spec = {"strokeWidth": 3, "color": style.GREY, "strokeOpacity": 0.55}
        layers.append(style.layer("line", encoding, data=_records(behind), **grey))
    layers += style.lines({**encoding, **looks}, _records(own), "row", "seeds", strokeWidth=1.5)
    return {"title": title, "width": 230, "height": 190, "layer": layers}


def _records(curves: Sequence[Curve]) -> list[Record]:
    return [
        {"row": curve.row, "seeds": curve.seeds, "step": step, "perplexity": value}
        for curve in curves
        for step, value in curve.points
    ]
