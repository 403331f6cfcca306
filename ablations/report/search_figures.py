"""Plots of a search.

A trial is a record of its name (``trial``), ``number``, ``state``, ``step``, ``perplexity`` (None
if it has none) and the values of its hyperparameters by name, and in words by :func:`trained`.
A hyperparameter is a record of its ``name``, ``log``, ``choices`` (empty for a range) and
``bounds``.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

from experiments.figures import style
from experiments.figures.style import Record, Spec
from experiments.records.progress import RunState

_MOST = 10.0  # times the best perplexity: worse trials are drawn at the edge too
_PERPLEXITY = style.axis("perplexity", "validation perplexity", log=True)
# For finished trials, which are within a factor of ten, where Vega would omit half of the labels.
_FINISHED = _PERPLEXITY | {"axis": {"labelOverlap": True, "labelExpr": "format(datum.value,'~r')"}}
_MARKS: dict[str, tuple[str, str]] = {
    RunState.DONE: (style.BLUE, "circle"),
    RunState.PRUNED: (style.ORANGE, "triangle-down"),
    RunState.DIVERGED: (style.VERMILION, "cross"),
    RunState.FAILED: (style.PINK, "square"),
}


def trained(name: str) -> str:
    """The field with a hyperparameter's value in words, the value trained with in parentheses."""
    return f"{name} (trained)"


def _inside_and_edge(trials: Sequence[Record]) -> tuple[list[Record], list[Record]]:
    """The trials that the perplexity axis shows, and those at its edge: trials that did not finish,
    whose perplexity is of an earlier step or missing, and trials far worse than the best.
    """
    finished = [trial for trial in trials if trial["state"] == RunState.DONE]
    known = [trial for trial in finished if 0 < (trial["perplexity"] or 0) < math.inf]
    most = _MOST * min((trial["perplexity"] for trial in known), default=math.inf)
    inside = [trial for trial in known if trial["perplexity"] <= most]
    edge = [trial for trial in trials if trial["state"] in _MARKS and trial not in inside]
    return inside, edge


def draw_history(trials: Sequence[Record]) -> Spec | None:
    """Perplexity by trial, and the best so far as a line; None before two trials have finished."""
    inside, edge = _inside_and_edge(trials)
    if len(inside) < 2:
        return None
    x = style.axis("number", "trial")
    x["scale"] |= {"nice": False}
    corners = inside[:1]  # the trials at which the lowest perplexity falls
    for trial in inside:
        if trial["perplexity"] < corners[-1]["perplexity"]:
            corners.append(trial)
    last = max(trial["number"] for trial in (*inside, *edge))
    corners.append({**corners[-1], "number": last})
    line: Spec = {"interpolate": "step-after", "color": style.GREY}
    best = style.layer("line", {"x": x, "y": _FINISHED}, data=corners, **line)
    return style.figure(
        "Perplexity by trial, and the best so far; unfinished trials are at the edge",
        width=440,
        height=240,
        layer=[best, *_points(inside, edge, x, "trial", "state", "step", "perplexity")],
    )


def draw_trial_curves(curves: Mapping[str, Mapping[int, float]], best: str | None) -> Spec | None:
    """The perplexity of each trial by step, in grey, the ``best`` in blue; None without a point.

    Args:
        curves: the curve of each trial, by name
    """
    values: list[Record] = []
    for name in sorted(curves, key=lambda name: name == best):  # the best is drawn on top
        for step, value in sorted(curves[name].items()):
            if 0 < value < math.inf:
                point = {"trial": name, "step": step, "perplexity": value}
                values.append({**point, "is_best": name == best})
    if not values:
        return None
    grey_or_blue = {
        "condition": {"test": "datum.is_best", "value": style.BLUE},
        "value": style.GREY,
    }
    encoding = {
        "x": style.axis("step", "optimizer step"),
        "y": _PERPLEXITY,
        "detail": {"field": "trial"},
        "color": grey_or_blue,
        "strokeWidth": {"condition": {"test": "datum.is_best", "value": 2.5}, "value": 0.8},
        "tooltip": style.tooltip("trial", "step", "perplexity"),
    }
    return style.figure(
        "Learning curves, the best trial in blue",
        width=440,
        height=240,
        layer=style.lines(encoding, values, "trial", strokeOpacity=0.8),
    )


def draw_importances(shares: Mapping[str, float]) -> Spec | None:
    """A bar for each hyperparameter, the most important first; None without any.

    Args:
        shares: importances by hyperparameter, which add up to 1
    """
    if not shares:
        return None
    share = {"field": "share", "type": "quantitative"}
    text = {"text": {**share, "format": ".0%"}}
    length = {"title": "importance", "axis": {"format": "%"}, "scale": {"zero": True}}
    parameter = {"field": "parameter", "type": "nominal", "sort": list(shares), "title": None}
    return style.figure(
        "Importance for being among the best quarter of trials",
        data={"values": [{"parameter": name, "share": shares[name]} for name in shares]},
        width=320,
        height={"step": 26},
        encoding={"y": parameter, "x": {**share, **length}},
        layer=[
            {"mark": {"type": "bar", "color": style.BLUE}},
            style.layer("text", text, align="left", dx=4, color=style.GREY),
        ],
    )


def draw_slices(trials: Sequence[Record], parameters: Sequence[Record]) -> Spec | None:
    """Perplexity against each hyperparameter in turn; None before two trials have finished."""
    inside, edge = _inside_and_edge(trials)
    if len(inside) < 2:
        return None
    return style.figure(
        "Perplexity against each hyperparameter; unfinished trials are at the edge",
        columns=3,
        concat=[_slice(inside, edge, parameter) for parameter in parameters],
    )


def _slice(inside: Sequence[Record], edge: Sequence[Record], parameter: Record) -> Spec:
    name, bounds = parameter["name"], parameter["bounds"]
    inside = [trial for trial in inside if name in trial]
    edge = [trial for trial in edge if name in trial]
    if parameter["choices"]:
        x: Spec = {"field": name, "type": "ordinal", "axis": {"labelAngle": 0}}
        x["scale"] = {"domain": list(parameter["choices"])}
    else:
        x = style.axis(name, name, log=parameter["log"], form="~s" if bounds[1] >= 1_000 else None)
        x["scale"] |= {"domain": list(bounds)}
        x["axis"] |= {"tickCount": 5}
    shown = ("trial", "state", "step", "perplexity", trained(name))
    return {"width": 230, "height": 190, "layer": _points(inside, edge, x, *shown)}


def _points(inside: Sequence[Record], edge: Sequence[Record], x: Spec, *shown: str) -> list[Spec]:
    """A mark for each trial along ``x``; those at the edge do not affect the axis."""
    colour_and_shape = style.looks(
        "state", [*inside, *edge], _MARKS, type="nominal", title=None, legend={"orient": "bottom"}
    )
    looks: Spec = {**colour_and_shape, "tooltip": style.tooltip(*shown)}
    mark: Spec = {"filled": True, "size": 45, "opacity": 0.7}
    at_edge: Spec = {"x": x, "y": {"value": 0}, **looks}
    return [
        style.layer("point", {"x": x, "y": _FINISHED, **looks}, data=inside, **mark),
        style.layer("point", at_edge, data=edge, **mark),
    ]
