"""The plots of a search's report."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

from ablations.report.facts import setting
from ablations.search.search import Search
from ablations.search.space import Hyperparameter
from ablations.search.trials import SearchTrial, best, ranked
from ablations.tables.changes import Value
from experiments.figures import style
from experiments.figures.style import Record, Spec
from experiments.records.progress import RunState

MOST_CURVES = 100
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


def draw_search(
    search: Search, trials: Sequence[SearchTrial], shares: Mapping[str, float]
) -> dict[str, Spec]:
    """The plots, by name, for which there are enough trials.

    Args:
        shares: importances by hyperparameter, which add up to 1; empty if they are not known
    """
    records = [_record(search, number, trial) for number, trial in enumerate(trials)]
    inside, edge = _inside_and_edge(records)
    curves = _curve_points(trials)
    figures: dict[str, Spec] = {}
    if len(inside) > 1:
        figures["history"] = _draw_history(inside, edge)
    if curves:
        figures["curves"] = _draw_curves(curves)
    if shares:
        figures["importances"] = _draw_importances(shares)
    if len(inside) > 1:
        pairs = zip(search.parameters, search.declared, strict=True)
        figures["slices"] = style.figure(
            "Perplexity against each hyperparameter; unfinished trials are at the edge",
            columns=3,
            concat=[_slice(inside, edge, used, declared) for used, declared in pairs],
        )
    return figures


def in_words(search: Search, values: Mapping[str, Value]) -> dict[str, str]:
    """Values in the units of the space; those trained with in parentheses, if they differ."""
    words: dict[str, str] = {}
    for name, value in search.declare(values).items():
        declared, trained = setting(name, value), setting(name, values[name])
        words[name] = declared if declared == trained else f"{declared} ({trained})"
    return words


def _record(search: Search, number: int, trial: SearchTrial) -> Record:
    """The data of a trial's marks: its values as numbers, or in words if they are not numbers."""
    declared, words = search.declare(trial.values), in_words(search, trial.values)
    return {
        "number": number,
        "trial": trial.name,
        "state": trial.state,
        "step": trial.step,
        "perplexity": trial.perplexity,
        **{_column(name): _on_axis(name, value) for name, value in declared.items()},
        **{_in_words(_column(name)): text for name, text in words.items()},
    }


def _column(name: str) -> str:
    """The name of a hyperparameter in a plot's data, where Vega would read a dot as a path."""
    return name.replace(".", " ")


def _in_words(name: str) -> str:
    """The field with a hyperparameter's value in words."""
    return f"{name} (trained)"


def _on_axis(name: str, value: Value) -> int | float | str:
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        return setting(name, value)
    return value


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


def _draw_history(inside: Sequence[Record], edge: Sequence[Record]) -> Spec:
    """Perplexity by trial, and the best so far as a line."""
    x = style.axis("number", "trial")
    x["scale"] |= {"nice": False}
    corners = [inside[0]]  # the trials at which the lowest perplexity falls
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


def _curve_points(trials: Sequence[SearchTrial]) -> list[Record]:
    """The perplexity of the best trials by step, of the best one last: it is drawn on top."""
    best_trial = best(trials)
    shown = sorted(ranked(trials)[:MOST_CURVES], key=lambda trial: trial is best_trial)
    points: list[Record] = []
    for trial in shown:
        for step, value in sorted(trial.curve.items()):
            if 0 < value < math.inf:
                point = {"trial": trial.name, "step": step, "perplexity": value}
                points.append({**point, "is_best": trial is best_trial})
    return points


def _draw_curves(points: Sequence[Record]) -> Spec:
    """The perplexity of each trial by step, in grey, of the best in blue."""
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
        layer=style.lines(encoding, points, "trial", strokeOpacity=0.8),
    )


def _draw_importances(shares: Mapping[str, float]) -> Spec:
    """A bar for each hyperparameter, the most important first."""
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


def _slice(
    inside: Sequence[Record],
    edge: Sequence[Record],
    parameter: Hyperparameter,
    declared: Hyperparameter,
) -> Spec:
    """Perplexity against one hyperparameter, in the units in which it is ``declared``."""
    name = _column(parameter.name)
    inside = [trial for trial in inside if name in trial]
    edge = [trial for trial in edge if name in trial]
    if declared.choices:
        x: Spec = {"field": name, "type": "ordinal", "axis": {"labelAngle": 0}}
        x["scale"] = {"domain": [_on_axis(parameter.name, value) for value in declared.choices]}
    else:
        form = "~s" if declared.high >= 1_000 else None
        x = style.axis(name, name, log=parameter.log, form=form)
        x["scale"] |= {"domain": [parameter.declare(end, declared) for end in parameter.bounds]}
        x["axis"] |= {"tickCount": 5}
    shown = ("trial", "state", "step", "perplexity", _in_words(name))
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
