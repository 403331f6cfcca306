"""Parallel coordinates of a search's parameters."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from ablations.figures.search import inside_and_edge, trained
from experiments.figures import style
from experiments.figures.style import Record, Spec

_MOST_LINES = 200
_SHOWN = ("trial", "perplexity", "axis", "value")


def draw_parallel(trials: Sequence[Record], parameters: Sequence[Record]) -> Spec | None:
    """A line for each finished trial through its values to its perplexity, coloured by rank.

    The best 200 are drawn, the best one in front. :mod:`ablations.figures.search` has the fields.

    Returns:
        None if fewer than two trials have finished
    """
    inside, _ = inside_and_edge(trials)
    if len(inside) < 2:
        return None
    best = sorted(inside, key=lambda trial: trial["perplexity"])[:_MOST_LINES]
    ends = best[0]["perplexity"], best[-1]["perplexity"]
    last: Record = {"name": "perplexity", "log": True, "choices": (), "bounds": ends}
    axes = [*parameters, last]
    # The axis of each parameter has a scale of its own, so positions are computed here.
    lines = [
        {
            **{name: trial[name] for name in ("trial", "perplexity")},
            "rank": rank,
            "place": place,
            **_point(each, trial[each["name"]], trial.get(trained(each["name"]))),
        }
        for rank, trial in reversed(list(enumerate(best, 1)))
        for place, each in enumerate(axes)
    ]
    labels = [_point(each, x) for each in axes for x in (each["choices"] or each["bounds"])]
    above = {"labelAngle": 0, "labelPadding": 20, "orient": "top", "grid": True}
    above |= {"domain": False, "ticks": False}
    order = [each["name"] for each in axes]
    y = {"field": "position", "type": "quantitative", "axis": None, "scale": {"domain": [0, 1]}}
    at = {"x": {"field": "axis", "sort": order, "title": None, "axis": above}, "y": y}
    colour = {
        "field": "rank",
        "type": "quantitative",
        "scale": {"range": [style.BLUE, style.ORANGE], "interpolate": "lab"},
        "legend": {"values": [1, len(best)], "orient": "bottom"},
    }
    by_place = {"detail": {"field": "trial"}, "order": {"field": "place", "type": "quantitative"}}
    along = {**at, **by_place, "color": colour, "tooltip": style.tooltip("rank", *_SHOWN)}
    text: Spec = {"align": "left", "dx": 8, "dy": -7, "color": style.GREY}
    return style.figure(
        "Parameters of each finished trial, the best in blue",
        width=max(300, 130 * len(axes)),
        height=260,
        layer=[
            style.layer("line", along, data=lines, point=True, strokeWidth=1.8),
            style.layer("text", {**at, "text": {"field": "value"}}, data=labels, **text),
        ],
    )


def _point(parameter: Record, value: Any, words: str | None = None) -> Record:
    """A value, if given in ``words``, on the parameter's axis, at a position from 0 to 1."""
    low, high = parameter["bounds"][0], parameter["bounds"][-1]
    if choices := parameter["choices"]:
        position = choices.index(value) / (len(choices) - 1)
    elif parameter["log"]:
        position = math.log(value / low) / (math.log(high / low) or 1)
    else:
        position = (value - low) / ((high - low) or 1)
    shown = f"{value:.3g}" if isinstance(value, float) else str(value)
    return {"axis": parameter["name"], "position": position, "value": words or shown}
