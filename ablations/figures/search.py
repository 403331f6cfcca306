"""The figures of a search: its course, its parameters one by one, and what matters."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any, Protocol

from ablations.figures.curves import Curve, thin
from experiments.figures.style import (
    BLUE,
    GREY,
    ORANGE,
    PINK,
    VERMILION,
    Record,
    Spec,
    axis,
    figure,
    tooltip,
)
from experiments.run.progress import RunState

_MOST = 10.0  # times the best perplexity: a worse one is at the edge too
_PERPLEXITY = "validation perplexity"
_MARKS = {
    RunState.DONE: (BLUE, "circle"),
    RunState.PRUNED: (ORANGE, "triangle-down"),
    RunState.DIVERGED: (VERMILION, "cross"),
    RunState.FAILED: (PINK, "square"),
}


class Trial(Protocol):
    """What the figures need of a trial: ``declared`` are its values in the units of the space,
    ``values`` those it was trained with, and ``perplexity`` is None if it has none.
    """

    @property
    def name(self) -> str: ...
    @property
    def state(self) -> RunState: ...
    @property
    def step(self) -> int: ...
    @property
    def declared(self) -> Mapping[str, Any]: ...
    @property
    def values(self) -> Mapping[str, Any]: ...
    @property
    def perplexity(self) -> float | None: ...


class Parameter(Protocol):
    """What the figures need of a parameter; ``choices`` is empty if it is a range."""

    @property
    def name(self) -> str: ...
    @property
    def log(self) -> bool: ...
    @property
    def choices(self) -> Sequence[Any]: ...
    @property
    def bounds(self) -> Sequence[Any]: ...


def draw_history(trials: Sequence[Trial]) -> Spec | None:
    """Perplexity by trial on a logarithmic axis, with the best so far as a line.

    Returns:
        None if fewer than two trials have finished
    """
    inside, edge = records(trials)
    if len(inside) < 2:
        return None
    x, y = axis("number", "trial"), axis("perplexity", _PERPLEXITY, log=True)
    x["scale"] |= {"nice": False}
    best = {
        "data": {"values": _best_so_far(inside, len(trials) - 1)},
        "mark": {"type": "line", "interpolate": "step-after", "color": GREY},
        "encoding": {"x": x, "y": y},
    }
    return figure(
        "Perplexity by trial, and the best so far; what did not finish is at the edge",
        width=440,
        height=240,
        layer=[best, *_points(inside, edge, x, tooltip("trial", "state", "step", "perplexity"))],
    )


def draw_trial_curves(curves: Sequence[Curve], best: str | None) -> Spec | None:
    """The learning curves of all trials in grey and of the ``best`` in blue; None without any."""
    values = [
        {"trial": curve.row, "step": step, "perplexity": value, "is_best": curve.row == best}
        for curve in sorted(thin(curves), key=lambda curve: curve.row == best)
        for step, value in curve.points
    ]
    if not values:
        return None
    return figure(
        "Learning curves, the best trial in blue",
        width=440,
        height=240,
        data={"values": values},
        mark={"type": "line", "strokeOpacity": 0.8},
        encoding={
            "x": axis("step", "optimiser step"),
            "y": axis("perplexity", _PERPLEXITY, log=True),
            "detail": {"field": "trial"},
            "color": {"condition": {"test": "datum.is_best", "value": BLUE}, "value": GREY},
            "size": {"condition": {"test": "datum.is_best", "value": 2.5}, "value": 0.8},
            "tooltip": tooltip("trial", "step", "perplexity"),
        },
    )


def draw_importances(shares: Mapping[str, float]) -> Spec | None:
    """A bar for each parameter, the most important first; None without any.

    Args:
        shares: of 1, by parameter
    """
    if not shares:
        return None
    values = [{"parameter": name, "share": share} for name, share in shares.items()]
    parameter = {"field": "parameter", "type": "nominal", "sort": list(shares), "title": None}
    share = {"field": "share", "type": "quantitative"}
    length = {"title": "importance", "axis": {"format": "%"}, "scale": {"zero": True}}
    return figure(
        "What decides whether a trial is among the best quarter",
        data={"values": values},
        width=320,
        height={"step": 26},
        encoding={"y": parameter, "x": share | length},
        layer=[
            {"mark": {"type": "bar", "color": BLUE}},
            {
                "mark": {"type": "text", "align": "left", "dx": 4, "color": GREY},
                "encoding": {"text": share | {"format": ".0%"}},
            },
        ],
    )


def draw_slices(trials: Sequence[Trial], parameters: Sequence[Parameter]) -> Spec | None:
    """Perplexity against each parameter by itself, one panel each.

    Returns:
        None if fewer than two trials have finished
    """
    inside, edge = records(trials)
    if len(inside) < 2:
        return None
    return figure(
        "Perplexity against each parameter; what did not finish is at the edge",
        columns=3,
        concat=[_slice(inside, edge, parameter) for parameter in parameters],
    )


def _slice(inside: Sequence[Record], edge: Sequence[Record], parameter: Parameter) -> Spec:
    name, of_scale = parameter.name, scaled(parameter.name)
    is_mapped = any(record[name] != record[of_scale] for record in (*inside, *edge))
    if parameter.choices:
        x: Spec = {"field": name, "type": "ordinal", "axis": {"labelAngle": 0}}
        x["scale"] = {"domain": [_plain(value) for value in parameter.choices]}
    else:
        x = axis(name, name, log=parameter.log, form="~s" if parameter.bounds[1] >= 1_000 else None)
        x["scale"] |= {"domain": list(parameter.bounds)}
        x["axis"] |= {"tickCount": 5}
    names = (name, of_scale) if is_mapped else (name,)
    shown = tooltip("trial", "state", "step", "perplexity", *names)
    return {"width": 230, "height": 190, "layer": _points(inside, edge, x, shown)}


def _points(
    inside: Sequence[Record], edge: Sequence[Record], x: Spec, shown: Sequence[Spec]
) -> list[Spec]:
    """A mark for each trial along ``x``: those at the edge have no part in the axis."""
    states = [state for state in _MARKS if any(x["state"] == state for x in (*inside, *edge))]
    marks = {
        channel: {
            "field": "state",
            "type": "nominal",
            "title": None,
            "scale": {"domain": states, "range": [_MARKS[state][place] for state in states]},
            "legend": {"orient": "bottom"},
        }
        for place, channel in enumerate(("color", "shape"))
    }
    return [
        {
            "data": {"values": values},
            "mark": {"type": "point", "filled": True, "size": 45, "opacity": 0.7},
            "encoding": {"x": x, "y": y, **marks, "tooltip": shown},
        }
        for values, y in (
            (inside, axis("perplexity", _PERPLEXITY, log=True)),
            (edge, {"value": 0}),
        )
    ]


def scaled(name: str) -> str:
    """What the value of a parameter is called that a trial was trained with."""
    return f"{name} at the scale"


def records(trials: Sequence[Trial]) -> tuple[list[dict[str, Any]], list[dict[str, Any]]]:
    """The trials that an axis of perplexity shows, and those at its edge: what did not finish, as
    its perplexity is of an earlier step or none, and what is far worse than the best.
    """
    values: list[dict[str, Any]] = [
        {
            "number": number,
            "trial": trial.name,
            "state": trial.state,
            "step": trial.step,
            "perplexity": trial.perplexity,
            **{name: _plain(value) for name, value in trial.declared.items()},
            **{scaled(name): _plain(value) for name, value in trial.values.items()},
        }
        for number, trial in enumerate(trials)
        if trial.state in _MARKS
    ]
    finished = [record for record in values if _is_finished(record)]
    most = _MOST * min((record["perplexity"] for record in finished), default=math.inf)
    inside = [record for record in finished if record["perplexity"] <= most]
    return inside, [record for record in values if record not in inside]


def _is_finished(record: Record) -> bool:
    value = record["perplexity"]
    return record["state"] == RunState.DONE and math.isfinite(value) and value > 0


def _plain(value: Any) -> Any:
    """A value as an axis of choices takes it."""
    return value if isinstance(value, (int, float)) and not isinstance(value, bool) else str(value)


def _best_so_far(inside: Sequence[Record], last: int) -> list[Record]:
    """Where the lowest perplexity falls, and the ``last`` trial."""
    corners: list[Record] = []
    for record in inside:
        if not corners or record["perplexity"] < corners[-1]["perplexity"]:
            corners.append(record)
    return [*corners, {**corners[-1], "number": last}] if corners else []
