"""The figures of a table: ours against the paper, seeds, and perplexity against size."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import copysign, log1p
from statistics import median

from experiments.figures.style import (
    BLUE,
    COLOURS,
    GREY,
    SHAPES,
    VERMILION,
    Record,
    Spec,
    axis,
    figure,
    tooltip,
)

_WIDTH, _HEIGHT = 400, 300
_AGREEMENT_WIDTH, _AGREEMENT_HEIGHT = 480, 340
_LETTER = 6  # the width of one in a label, in pixels like the figures
# By hue and by shape, for readers who cannot tell the colours apart.
_AGREEMENT = {
    "agrees": (BLUE, "circle"),
    "same sign": (BLUE, "circle"),
    "within noise": (GREY, "square"),
    "none in paper": (GREY, "diamond"),
    "other sign": (VERMILION, "triangle-up"),
    "contradicts": (VERMILION, "triangle-up"),
}


def draw_agreement(rows: Sequence[Record], measure: str) -> Spec:
    """Each row's difference from the base here against the paper's, with its interval.

    Args:
        rows: ``row``, ``paper``, ``ours``, ``low`` and ``high`` (None without an interval) and
            ``agreement``, one of :func:`ablations.report.verdicts.agreement`'s words
        measure: the axes' name of what differs
    """
    # The large differences of a few rows would press all others together on a linear axis.
    typical = {name: median(abs(row[name]) for row in rows) or 1 for name in ("paper", "ours")}
    x = axis("paper", f"Δ {measure} in the paper", symlog=typical["paper"])
    y = axis("ours", f"Δ {measure} here", symlog=typical["ours"])
    places = _label_places(rows, typical)
    known = {row["agreement"] for row in rows}
    shown = {word: look for word, look in _AGREEMENT.items() if word in known}
    colours, shapes = zip(*shown.values(), strict=True)
    by = {"field": "agreement", "title": "sign of Δ"}
    colour = {**by, "scale": {"domain": list(shown), "range": colours}}
    shape = {**by, "scale": {"domain": list(shown), "range": shapes}}
    zero = {"mark": {"type": "rule", "strokeDash": [3, 3], "opacity": 0.6}}
    at_zero = {"datum": 0, "type": "quantitative"}
    ends = {"x": x, "y": {**y, "field": "low"}, "y2": {"field": "high"}, "color": colour}
    interval = {
        "transform": [{"filter": "isValid(datum.low)"}],
        "mark": {"type": "rule", "strokeWidth": 2, "opacity": 0.6},
        "encoding": ends,
    }
    return figure(
        f"{measure}: difference from the base, ours against the paper's",
        width=_AGREEMENT_WIDTH,
        height=_AGREEMENT_HEIGHT,
        data={"values": [{**row, "place": place} for row, place in zip(rows, places, strict=True)]},
        layer=[
            {**zero, "data": {"values": [{}]}, "encoding": {"x": at_zero}},
            {**zero, "data": {"values": [{}]}, "encoding": {"y": at_zero}},
            *[interval] * any(row["low"] is not None for row in rows),
            {
                "mark": {"type": "point", "filled": True, "size": 70, "opacity": 1},
                "encoding": {
                    "x": x,
                    "y": y,
                    "color": colour,
                    "shape": shape,
                    "tooltip": tooltip("row", "paper", "ours", "low", "high", "agreement"),
                },
            },
            *(
                {
                    "transform": [{"filter": {"field": "place", "equal": place}}],
                    "mark": {"type": "text", "align": "left", "dx": 7, "dy": dy, "fontSize": 10},
                    "encoding": {"x": x, "y": y, "text": {"field": "row"}},
                }
                for place, dy in (("above", -4), ("below", 12))
            ),
        ],
    )


def _label_places(rows: Sequence[Record], typical: Mapping[str, float]) -> list[str]:
    """``below`` for each row whose label would cover the point to its right, else ``above``."""
    xs = _pixels([row["paper"] for row in rows], typical["paper"], _AGREEMENT_WIDTH)
    ys = _pixels([row["ours"] for row in rows], typical["ours"], _AGREEMENT_HEIGHT)
    return [
        "below"
        if any(
            0 < right - x < _LETTER * (1 + len(row["row"])) and abs(height - y) < 2 * _LETTER
            for right, height in zip(xs, ys, strict=True)
        )
        else "above"
        for row, x, y in zip(rows, xs, ys, strict=True)
    ]


def _pixels(values: Sequence[float], constant: float, length: int) -> list[float]:
    """Where ``values`` lie on a symlog axis of ``length`` pixels, but for a shift."""
    logs = [copysign(log1p(abs(value) / constant), value) for value in values]
    return [length * log / (max(logs) - min(logs) or 1) for log in logs]


def draw_against(
    rows: Sequence[Record], field: str, title: str, score: str, label: str, *, log: bool
) -> Spec:
    """A score of each row against a size of its model or its training.

    Args:
        rows: ``row``, ``group``, the score (its mean over seeds) and the field
        field: such as ``parameters``
        title: of the axis, with its unit
        score: such as ``perplexity``
        label: of the score
        log: whether its axis is logarithmic too
    """
    x = axis(field, title, log=True, form="~s" if field == "parameters" else ".1~e")
    y = axis(score, label, log=log)
    groups = list(dict.fromkeys(row["group"] for row in rows))
    return figure(
        f"{label} against {title}",
        width=_WIDTH,
        height=_HEIGHT,
        data={"values": rows},
        layer=[
            {
                "mark": {"type": "point", "filled": True, "size": 70, "opacity": 1},
                "encoding": {
                    "x": x,
                    "y": y,
                    "color": {"field": "group", "scale": _colours(groups)},
                    "shape": {"field": "group", "scale": {"domain": groups, "range": SHAPES}},
                    "tooltip": tooltip("row", field, score),
                },
            },
            {
                "mark": {"type": "text", "align": "left", "dx": 7, "fontSize": 10},
                "encoding": {"x": x, "y": y, "text": {"field": "row"}},
            },
        ],
    )


def draw_seeds(runs: Sequence[Record], measure: str) -> Spec:
    """Each seed as a point and each row's mean as a tick, the base's mean as a line.

    Args:
        runs: ``row``, ``seed``, ``value`` and ``is_base``
        measure: the axis' name of the value
    """
    order = list(dict.fromkeys(run["row"] for run in runs))
    x = axis("value", measure)
    y = {"field": "row", "sort": order, "title": None, "axis": {"grid": True}}
    mean = {"aggregate": "mean", **x}
    return figure(
        f"{measure} by seed",
        width=_WIDTH,
        height={"step": 15},
        data={"values": runs},
        layer=[
            {
                "transform": [{"filter": "datum.is_base"}],
                "mark": {"type": "rule", "color": GREY, "strokeDash": [3, 3]},
                "encoding": {"x": mean},
            },
            {"mark": {"type": "tick", "thickness": 2}, "encoding": {"x": mean, "y": y}},
            {
                "mark": {"type": "point", "color": BLUE, "size": 35, "opacity": 0.9},
                "encoding": {"x": x, "y": y, "tooltip": tooltip("row", "seed", "value")},
            },
        ],
    )


def _colours(groups: Sequence[str]) -> Spec:
    """The scale of colours for groups of rows, the base in grey."""
    others = iter(COLOURS * len(groups))
    return {
        "domain": list(groups),
        "range": [GREY if g == "base" else next(others) for g in groups],
    }
