"""Parallel coordinates of a search's parameters."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from ablations.figures.search import inside_and_edge, scaled
from experiments.figures import style
from experiments.figures.style import Record, Spec

_MOST_LINES = 200
_PERPLEXITY = "perplexity"


def draw_parallel(trials: Sequence[Record], parameters: Sequence[Record]) -> Spec | None:
    """A line for each finished trial through its values to its perplexity, coloured by rank.

    The best 200 are drawn, the best one in front. The values of the others are grey marks at the
    axes, as their perplexity cannot be compared. :mod:`ablations.figures.search` has the fields.

    Returns:
        None if fewer than two trials have finished
    """
    inside, edge = inside_and_edge(trials)
    if len(inside) < 2:
        return None
    best = sorted(inside, key=lambda trial: trial[_PERPLEXITY])[:_MOST_LINES]
    ends = best[0][_PERPLEXITY], best[-1][_PERPLEXITY]
    last: Record = {"name": _PERPLEXITY, "log": True, "choices": (), "bounds": ends}
    axes = [*parameters, last]
    above = {"labelAngle": 0, "labelPadding": 20, "orient": "top", "grid": True}
    above |= {"domain": False, "ticks": False}
    names = [each["name"] for each in axes]
    # The axis of each parameter has a scale of its own, so positions are computed here.
    place: Spec = {
        "x": {"field": "axis", "type": "nominal", "sort": names, "title": None, "axis": above},
        "y": {"field": "position", "type": "quantitative", "axis": None},
    }
    place["y"]["scale"] = {"domain": [0, 1]}
    shown = ("trial", "state", _PERPLEXITY, "axis", "value", "trained")
    colour = {
        "field": "rank",
        "type": "quantitative",
        "scale": {"range": [style.BLUE, style.ORANGE], "interpolate": "lab"},
        "legend": {"title": "rank", "values": [1, len(best)], "orient": "bottom"},
    }
    lines = {
        **place,
        "detail": {"field": "trial"},
        "color": colour,
        "order": {"field": "place", "type": "quantitative"},
        "tooltip": style.tooltip("rank", *shown),
    }
    ranked = reversed(list(enumerate(best, 1)))
    along = [x for rank, trial in ranked for x in _along({**trial, "rank": rank}, axes)]
    others = [x for trial in edge for x in _along(trial, parameters)]
    labels = [_label(each, value) for each in axes for value in each["bounds"]]
    tick: Spec = {"color": style.GREY, "opacity": 0.5, "size": 9, "xOffset": -8}
    text: Spec = {"align": "left", "dx": 8, "dy": -7, "color": style.GREY}
    return style.figure(
        "Parameters of each finished trial, the best in blue; the others as grey marks",
        width=max(300, 130 * len(names)),
        height=260,
        layer=[
            style.layer("tick", {**place, "tooltip": style.tooltip(*shown)}, data=others, **tick),
            style.layer("line", lines, data=along, point=True, strokeWidth=1.8),
            style.layer("text", {**place, "text": {"field": "label"}}, data=labels, **text),
        ],
    )


def _along(trial: Record, axes: Sequence[Record]) -> list[Record]:
    """A point for each axis that a trial crosses."""
    return [
        {
            **{name: trial.get(name) for name in ("trial", "state", "rank", _PERPLEXITY)},
            "axis": each["name"],
            "place": place,
            "value": trial[each["name"]],
            "trained": trial.get(scaled(each["name"])),
            "position": _position(each, trial[each["name"]]),
        }
        for place, each in enumerate(axes)
    ]


def _position(parameter: Record, value: Any) -> float:
    """Where a value is between the ends of the parameter's axis, from 0 to 1.

    A value outside the bounds is drawn at an end.
    """
    if choices := [str(choice) for choice in parameter["choices"]]:
        return choices.index(str(value)) / (len(choices) - 1) if str(value) in choices else 0.0
    low, high = parameter["bounds"]
    if parameter["log"]:
        low, high, value = math.log(low), math.log(high), math.log(max(value, low))
    return min(1.0, max(0.0, (value - low) / (high - low))) if high > low else 0.0


def _label(parameter: Record, value: Any) -> Record:
    """The label at an end of an axis, or of a choice."""
    label = f"{value:.3g}" if isinstance(value, float) else str(value)
    return {"axis": parameter["name"], "position": _position(parameter, value), "label": label}
