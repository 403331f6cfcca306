"""The figures of a search as specifications."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import pytest

from ablations.search.report import draw_search
from ablations.search.space import BASE_LR, SHAPE
from ablations.search.trials import Trial
from ablations.tables.scales import QUICK
from experiments.figures.style import Spec
from experiments.records.progress import RunState
from tests.ablations.search.samples import search_of

SEARCH = search_of(replace(BASE_LR, parameters=(*BASE_LR.parameters, SHAPE.parameters[1])), QUICK)
ENDS = (
    (RunState.DONE, 5.0),
    (RunState.PRUNED, 40.0),
    (RunState.DONE, 4.0),
    (RunState.DIVERGED, None),
    (RunState.DONE, 900.0),  # much worse than the best
    (RunState.FAILED, None),
    (RunState.PRUNED, 3.9),  # at an earlier step, and so not comparable
    (RunState.RUNNING, None),
)


def trial(number: int, state: RunState, perplexity: float | None) -> Trial:
    values = {"learning_rate_factor": 0.1 + 0.2 * number, "warmup_steps": 64, "d_model": 96}
    name = f"trial-{number:04}"
    return Trial(name=name, state=state, values=values, perplexity=perplexity)


TRIALS = [trial(number, *end) for number, end in enumerate(ENDS)]
DRAWN = draw_search(SEARCH, TRIALS, {})


def points(spec: Spec) -> tuple[list[Any], list[Any]]:
    """The numbers of the trials along the axis of perplexity, and of those at its edge."""
    inside, edge = (x for x in spec["layer"] if x["mark"]["type"] == "point")
    assert inside["encoding"]["y"]["scale"]["type"] == "log"
    assert edge["encoding"]["y"] == {"value": 0}
    found = [[x["trial"][-1] for x in layer["data"]["values"]] for layer in (inside, edge)]
    return found[0], found[1]


def test_the_axis_of_perplexity_belongs_to_finished_trials() -> None:
    history = DRAWN["history"]
    for spec in (history, *DRAWN["slices"]["concat"]):
        assert points(spec) == (["0", "2"], ["1", "3", "4", "5", "6"])
    (line,) = (x for x in history["layer"] if x["mark"]["type"] == "line")
    assert [(x["number"], x["perplexity"]) for x in line["data"]["values"]] == [
        (0, 5.0),
        (2, 4.0),
        (6, 4.0),  # the last that ended
    ]
    assert not draw_search(SEARCH, TRIALS[:2], {})


def test_slices_have_the_bounds_of_each_parameter_in_the_units_of_the_space() -> None:
    rate, warm_up, width = (panel["layer"][0] for panel in DRAWN["slices"]["concat"])
    assert rate["encoding"]["x"]["scale"]["domain"] == [0.1, 4.0]
    assert warm_up["encoding"]["x"]["scale"] | {"padding": 0} == {
        "type": "log",
        "nice": False,
        "padding": 0,
        "domain": [500, 40_000],
    }
    assert width["encoding"]["x"]["type"] == "ordinal"
    assert width["encoding"]["x"]["scale"]["domain"] == [256, 384, 512, 640, 768]


def test_parallel_coordinates_have_a_line_for_each_finished_trial() -> None:
    lines, labels = (layer["data"]["values"] for layer in DRAWN["parallel"]["layer"])
    assert [(x["trial"][-1], x["rank"]) for x in lines] == [("0", 2)] * 4 + [("2", 1)] * 4
    positions = [math.log(5) / math.log(40), math.log(64 / 8) / math.log(80), 1.0, 0.0]
    assert [x["position"] for x in lines[4:]] == pytest.approx(positions)
    assert " ".join(x["value"] for x in labels) == "0.1 4 500 40000 256 384 512 640 768 4 5"
    assert {x["position"] for x in labels} == {0, 0.25, 0.5, 0.75, 1}
