"""The figures of a search: its course, its parameters together and one by one, and what matters."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any, Protocol

from ablations.figures.curves import Curve, thin
from experiments.figures.style import BLUE, GREY, ORANGE, Record, Spec, axis, figure, tooltip
from experiments.run.progress import RunState

_WORST = 100.0  # times the best: where a trial that diverges is drawn
_MOST_LINES = 200
_PERPLEXITY = "validation perplexity"


class Trial(Protocol):
    """What the figures need of a trial; ``perplexity`` is None if it has none."""

    @property
    def name(self) -> str: ...
    @property
    def state(self) -> RunState: ...
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
        None if fewer than two trials have a perplexity
    """
    records = _records(trials)
    if len(records) < 2:
        return None
    return figure(
        "Perplexity by trial, and the best so far",
        width=440,
        height=240,
        layer=[
            {
                "data": {"values": _best_so_far(trials)},
                "mark": {"type": "line", "interpolate": "step-after", "color": GREY},
                "encoding": {
                    "x": axis("number", "trial"),
                    "y": axis("perplexity", _PERPLEXITY, log=True),
                },
            },
            {
                "data": {"values": records},
                "mark": {"type": "point", "filled": True, "size": 45},
                "encoding": {
                    "x": axis("number", "trial"),
                    "y": axis("perplexity", _PERPLEXITY, log=True),
                    **_by_state(),
                    "tooltip": tooltip("trial", "state", "perplexity"),
                },
            },
        ],
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


def draw_parallel(trials: Sequence[Trial], parameters: Sequence[Parameter]) -> Spec | None:
    """Parallel coordinates: a line for each trial through its values, coloured by rank.

    The best 200 are drawn, the best one in front. Pruned trials are grey and behind, as their
    perplexity cannot be compared.

    Returns:
        None if fewer than two trials have finished
    """
    records = _records(trials)
    finished = sorted(
        (record for record in records if record["state"] == RunState.DONE),
        key=lambda record: -record["perplexity"],
    )
    if len(finished) < 2:
        return None
    pruned = [record for record in records if record["state"] != RunState.DONE][:_MOST_LINES]
    names = [parameter.name for parameter in parameters]
    above = {"labelAngle": 0, "labelPadding": 12, "orient": "top", "grid": True}
    above |= {"domain": False, "ticks": False}
    x = {"field": "parameter", "type": "nominal", "sort": names, "title": None, "axis": above}
    # The axis of each parameter has a scale of its own, so positions are computed here.
    y = {"field": "position", "type": "quantitative", "axis": None, "scale": {"domain": [0, 1]}}
    encoding = {"x": x, "y": y, "detail": {"field": "trial"}}
    shown = tooltip("trial", "rank", "perplexity", "parameter", "value")
    # By rank, as one trial that diverges would leave all others the same colour.
    for rank, record in enumerate(reversed(finished), 1):
        record["rank"] = rank
    finished = finished[-_MOST_LINES:]
    legend = {"title": "rank", "values": [1, len(finished)], "orient": "bottom"}
    colour = {"range": [BLUE, ORANGE], "interpolate": "lab"}
    return figure(
        "Parameters of each trial, the best in blue, pruned ones in grey",
        width=max(300, 130 * len(names)),
        height=260,
        layer=[
            {
                "data": {"values": _along(pruned, parameters)},
                "mark": {"type": "line", "color": GREY, "strokeOpacity": 0.35, "strokeWidth": 1},
                "encoding": encoding,
            },
            {
                "data": {"values": _along(finished, parameters)},
                "mark": {"type": "line", "point": True, "strokeWidth": 1.8},
                "encoding": {
                    **encoding,
                    "color": _number("rank", scale=colour, legend=legend),
                    "order": {"field": "place", "type": "quantitative"},
                    "tooltip": shown,
                },
            },
            {
                "data": {"values": _ends(parameters)},
                "mark": {"type": "text", "align": "left", "dx": 6, "fontSize": 10, "color": GREY},
                "encoding": {"x": x, "y": y, "text": {"field": "label"}},
            },
        ],
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
    share = _number("share", title="importance", axis={"format": "%"}, scale={"zero": True})
    return figure(
        "What decides whether a trial is among the best tenth",
        data={"values": values},
        width=320,
        height={"step": 26},
        encoding={"y": parameter, "x": share},
        layer=[
            {"mark": {"type": "bar", "color": BLUE}},
            {
                "mark": {"type": "text", "align": "left", "dx": 4, "color": GREY},
                "encoding": {"text": _number("share", format=".0%")},
            },
        ],
    )


def draw_slices(trials: Sequence[Trial], parameters: Sequence[Parameter]) -> Spec | None:
    """Perplexity against each parameter by itself, one panel each.

    Returns:
        None if fewer than two trials have a perplexity
    """
    records = _records(trials)
    if len(records) < 2:
        return None
    values = [
        {**record["values"], **{key: x for key, x in record.items() if key != "values"}}
        for record in records
    ]
    return figure(
        "Perplexity against each parameter",
        columns=3,
        data={"values": values},
        concat=[_slice(parameter) for parameter in parameters],
    )


def _slice(parameter: Parameter) -> Spec:
    x: Spec = {"field": parameter.name, "type": "ordinal", "axis": {"labelAngle": 0}}
    if not parameter.choices:
        x = axis(parameter.name, parameter.name, log=parameter.log)
    return {
        "width": 230,
        "height": 190,
        "mark": {"type": "point", "filled": True, "size": 40},
        "encoding": {
            "x": x,
            "y": axis("perplexity", _PERPLEXITY, log=True),
            **_by_state(),
            "tooltip": tooltip("trial", "state", "perplexity", parameter.name),
        },
    }


def _by_state() -> Spec:
    """Colour and shape, so that the states differ without colour too."""
    ranges = {"color": [BLUE, ORANGE], "shape": ["circle", "triangle-down"]}
    return {
        channel: {
            "field": "state",
            "type": "nominal",
            "title": None,
            "scale": {"domain": [RunState.DONE, RunState.PRUNED], "range": values},
            "legend": {"orient": "bottom"},
        }
        for channel, values in ranges.items()
    }


def _number(field: str, **settings: Any) -> Spec:
    return {"field": field, "type": "quantitative", **settings}


def _records(trials: Sequence[Trial]) -> list[dict[str, Any]]:
    """The trials with a perplexity; one far above the best is lowered so that the others differ."""
    known = [(n, t, t.perplexity) for n, t in enumerate(trials) if t.perplexity is not None]
    sound = [(n, trial, x) for n, trial, x in known if math.isfinite(x) and x > 0]
    top = _WORST * min((value for _, _, value in sound), default=1.0)
    return [
        {
            "number": number,
            "trial": trial.name,
            "state": trial.state,
            "perplexity": min(value, top),
            "values": trial.values,
        }
        for number, trial, value in sound
    ]


def _best_so_far(trials: Sequence[Trial]) -> list[Record]:
    """Where the lowest perplexity of finished trials falls, and the last trial."""
    corners: list[Record] = []
    lowest = math.inf
    for record in _records(trials):
        if record["state"] == RunState.DONE and record["perplexity"] < lowest:
            lowest = record["perplexity"]
            corners.append({"number": record["number"], "perplexity": lowest})
    last = {"number": len(trials) - 1, "perplexity": lowest}
    return [*corners, last] if corners else []


def _along(records: Sequence[Record], parameters: Sequence[Parameter]) -> list[Record]:
    """A point for each trial and parameter."""
    return [
        {
            "trial": record["trial"],
            "rank": record.get("rank"),
            "perplexity": record["perplexity"],
            "parameter": parameter.name,
            "place": place,
            "value": record["values"][parameter.name],
            "position": _position(parameter, record["values"][parameter.name]),
        }
        for record in records
        for place, parameter in enumerate(parameters)
    ]


def _position(parameter: Parameter, value: Any) -> float:
    """Where a value is between the ends of the parameter's axis, from 0 to 1.

    A value outside the bounds is drawn at an end.
    """
    if parameter.choices:
        choices = list(parameter.choices)
        return choices.index(value) / (len(choices) - 1) if value in choices else 0.0
    low, high = parameter.bounds
    if parameter.log:
        low, high, value = math.log(low), math.log(high), math.log(max(value, low))
    return min(1.0, max(0.0, (value - low) / (high - low)))


def _ends(parameters: Sequence[Parameter]) -> list[Record]:
    """The labels of each parameter's axis: its choices or the ends of its range."""
    return [
        {
            "parameter": parameter.name,
            "position": _position(parameter, value),
            "label": f"{value:.3g}" if isinstance(value, float) else str(value),
        }
        for parameter in parameters
        for value in parameter.bounds
    ]
