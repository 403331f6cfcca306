"""Panels that plot what runs log at each step."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from experiments.figures import style
from experiments.figures.style import Record, Spec
from experiments.records.run import Run

MOST_RUNS = 2 * len(style.COLOURS)  # in one panel: each colour solid and dashed
_MOST_POINTS = 200  # of a line, about one per pixel
_HEIGHT = 150


@dataclass(frozen=True, slots=True)
class _Measure:
    """What a panel shows: its title, and a function that gives a run's values by step."""

    title: str
    values: Callable[[Run], Mapping[int, float]]
    log: bool = False


_MEASURES = {
    "loss": _Measure("Training loss", lambda run: run.losses),
    "perplexity": _Measure("Validation perplexity", lambda run: run.curve, log=True),
    "learning-rate": _Measure("Learning rate", lambda run: run.learning_rates),
    "gradient-norm": _Measure("Gradient norm", lambda run: run.gradient_norms, log=True),
    "speed": _Measure("Target tokens per second", lambda run: run.speeds),
}


@dataclass(frozen=True, slots=True)
class Look:
    """The colour and dashes of a run's line, in all panels."""

    name: str
    colour: str
    is_dashed: bool


def looks_of(runs: Sequence[Run]) -> list[Look]:
    """A different look for each of up to ``MOST_RUNS`` runs."""
    count = len(style.COLOURS)
    return [
        Look(run.name, style.COLOURS[place % count], place >= count)
        for place, run in enumerate(runs)
    ]


def draw_panels(runs: Sequence[Run]) -> dict[str, Spec]:
    """A plot for each measure that some run logged, by name; each fills the width of its container.

    Args:
        runs: up to ``MOST_RUNS`` runs
    """
    figures: dict[str, Spec] = {}
    looks = looks_of(runs)
    for name, measure in _MEASURES.items():
        # The first runs are drawn last, on top of the others.
        records = [record for run in reversed(runs) for record in _records(run, measure)]
        if records:
            figures[name] = _draw(measure, records, looks)
    return figures


def _records(run: Run, measure: _Measure) -> list[Record]:
    values = measure.values(run)
    least = 0.0 if measure.log else -math.inf
    points = [(step, values[step]) for step in sorted(values) if least < values[step] < math.inf]
    apart = math.ceil(len(points) / _MOST_POINTS) or 1
    first = (len(points) - 1) % apart  # so that the last point is included
    return [{"run": run.name, "step": step, "value": value} for step, value in points[first::apart]]


def _draw(measure: _Measure, records: Sequence[Record], looks: Sequence[Look]) -> Spec:
    names = [look.name for look in looks]
    dashes = [[4, 2] if look.is_dashed else [1, 0] for look in looks]
    x, y = style.axis("step", "optimizer step"), style.axis("value", "", log=measure.log)
    x["scale"] |= {"nice": False}
    x["axis"] |= {"tickCount": 4}
    y |= {"title": None}
    if len({record["value"] for record in records}) == 1:  # the axis would round it arbitrarily
        y["axis"] |= {"format": ".3~r"}
    colours = {"domain": names, "range": [look.colour for look in looks]}
    encoding = {
        "x": x,
        "y": y,
        "color": {"field": "run", "legend": None, "scale": colours},
        "strokeDash": {
            "field": "run",
            "legend": None,
            "scale": {"domain": names, "range": dashes},
        },
        "tooltip": style.tooltip("run", "step", "value"),
    }
    return style.figure(
        measure.title,
        width="container",
        height=_HEIGHT,
        layer=style.lines(encoding, records, "run", strokeWidth=1.5),
    )
