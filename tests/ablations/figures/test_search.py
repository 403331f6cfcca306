"""The figures of a search as specifications."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from ablations.search.search import make_search
from ablations.search.shown import draw_search
from ablations.search.spaces import BASE_LR, SHAPE
from ablations.search.trials import Trial
from ablations.tables.scales import QUICK
from experiments.figures.style import Spec
from experiments.records.progress import RunState

SEARCH = make_search(
    replace(BASE_LR, parameters=(*BASE_LR.parameters, SHAPE.parameters[1])),
    QUICK,
    trials=9,
    seed=1,
)
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
    declared = SEARCH.declare(values)
    name = f"trial-{number:04}"
    return Trial(name=name, state=state, values=values, declared=declared, perplexity=perplexity)


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
        (7, 4.0),
    ]
    assert not draw_search(SEARCH, TRIALS[:2], {})


def test_slices_are_in_the_units_of_the_space_with_the_scales_beside_them() -> None:
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
    for panel, name, ours, theirs in (
        (warm_up, "warmup_steps", 4_000, 64),
        (width, "d_model", 768, 96),
    ):
        of_scale = panel["encoding"]["tooltip"][-1]["field"]
        (first, *_) = panel["data"]["values"]
        assert (first[name], first[of_scale]) == (ours, theirs)
    assert "learning_rate_factor" in rate["encoding"]["tooltip"][-1]["field"]


def test_parallel_coordinates_have_lines_of_finished_trials_alone() -> None:
    marks, lines, _ = DRAWN["parallel"]["layer"]
    assert {x["trial"][-1] for x in lines["data"]["values"]} == {"0", "2"}
    assert {x["trial"][-1] for x in marks["data"]["values"]} == {"1", "3", "4", "5", "6"}
    positions = {x["axis"]: x["position"] for x in lines["data"]["values"] if x["rank"] == 1}
    assert positions["d_model"] == 1.0 and positions["perplexity"] == 0.0
    assert 0.4 < positions["warmup_steps"] < 0.5  # on a logarithmic axis
