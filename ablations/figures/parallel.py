"""Parallel coordinates: an axis for each parameter of a search, and one for the perplexity."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from ablations.figures.search import Parameter, Trial, records, scaled
from experiments.figures.style import BLUE, GREY, ORANGE, Record, Spec, figure, tooltip

_MOST_LINES = 200
_PERPLEXITY = "perplexity"


def draw_parallel(trials: Sequence[Trial], parameters: Sequence[Parameter]) -> Spec | None:
    """A line for each finished trial through its values to its perplexity, coloured by rank.

    The best 200 are drawn, the best one in front. The values of the others are grey marks at the
    axes, as their perplexity cannot be compared.

    Returns:
        None if fewer than two trials have finished
    """
    inside, edge = records(trials)
    if len(inside) < 2:
        return None
    best = sorted(inside, key=lambda record: record[_PERPLEXITY])[:_MOST_LINES]
    ends = best[0][_PERPLEXITY], best[-1][_PERPLEXITY]
    names = [parameter.name for parameter in parameters]
    above = {"labelAngle": 0, "labelPadding": 20, "orient": "top", "grid": True}
    above |= {"domain": False, "ticks": False}
    order = [*names, _PERPLEXITY]
    x = {"field": "axis", "type": "nominal", "sort": order, "title": None, "axis": above}
    # The axis of each parameter has a scale of its own, so positions are computed here.
    y = {"field": "position", "type": "quantitative", "axis": None, "scale": {"domain": [0, 1]}}
    legend = {"title": "rank", "values": [1, len(best)], "orient": "bottom"}
    colour = {"range": [BLUE, ORANGE], "interpolate": "lab"}
    shown = tooltip("trial", "state", _PERPLEXITY, "axis", "value", "trained")
    lines = [
        point
        for rank, record in reversed(list(enumerate(best, 1)))
        for point in (
            *_along(record | {"rank": rank}, parameters),
            {
                "trial": record["trial"],
                "rank": rank,
                "axis": _PERPLEXITY,
                "place": len(names),
                "value": record[_PERPLEXITY],
                "position": _between(record[_PERPLEXITY], *ends, log=True),
            },
        )
    ]
    return figure(
        "Parameters of each finished trial, the best in blue; the others as grey marks",
        width=max(300, 130 * len(order)),
        height=260,
        layer=[
            {
                "data": {"values": [x for record in edge for x in _along(record, parameters)]},
                "mark": {"type": "tick", "color": GREY, "opacity": 0.5, "size": 9, "xOffset": -8},
                "encoding": {"x": x, "y": y, "tooltip": shown},
            },
            {
                "data": {"values": lines},
                "mark": {"type": "line", "point": True, "strokeWidth": 1.8},
                "encoding": {
                    "x": x,
                    "y": y,
                    "detail": {"field": "trial"},
                    "color": {
                        "field": "rank",
                        "type": "quantitative",
                        "scale": colour,
                        "legend": legend,
                    },
                    "order": {"field": "place", "type": "quantitative"},
                    "tooltip": tooltip("rank", *(each["field"] for each in shown)),
                },
            },
            {
                "data": {"values": _ends(parameters, ends)},
                "mark": {"type": "text", "align": "left", "dx": 8, "dy": -7, "color": GREY},
                "encoding": {"x": x, "y": y, "text": {"field": "label"}},
            },
        ],
    )


def _along(record: Record, parameters: Sequence[Parameter]) -> list[Record]:
    """A point for each parameter of a trial."""
    return [
        {
            **{name: record.get(name) for name in ("trial", "state", "rank", _PERPLEXITY)},
            "axis": parameter.name,
            "place": place,
            "value": record[parameter.name],
            "trained": record[scaled(parameter.name)],
            "position": _position(parameter, record[parameter.name]),
        }
        for place, parameter in enumerate(parameters)
    ]


def _position(parameter: Parameter, value: Any) -> float:
    """Where a value is between the ends of the parameter's axis, from 0 to 1.

    A value outside the bounds is drawn at an end.
    """
    if parameter.choices:
        choices = [str(choice) for choice in parameter.choices]
        return choices.index(str(value)) / (len(choices) - 1) if str(value) in choices else 0.0
    low, high = parameter.bounds
    return _between(value, low, high, log=parameter.log)


def _between(value: float, low: float, high: float, *, log: bool) -> float:
    if log:
        low, high, value = math.log(low), math.log(high), math.log(max(value, low))
    return min(1.0, max(0.0, (value - low) / (high - low))) if high > low else 0.0


def _ends(parameters: Sequence[Parameter], perplexities: tuple[float, float]) -> list[Record]:
    """The labels of each axis: its choices or the ends of its range."""
    labelled = [
        (parameter.name, _position(parameter, value), value)
        for parameter in parameters
        for value in parameter.bounds
    ]
    labelled += [(_PERPLEXITY, place, value) for place, value in enumerate(perplexities)]
    return [
        {
            "axis": name,
            "position": position,
            "label": f"{value:.3g}" if isinstance(value, float) else str(value),
        }
        for name, position, value in labelled
    ]
