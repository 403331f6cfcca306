"""The steps at which trials are compared."""

from __future__ import annotations

import pytest

from ablations.search.rungs import Pruner, count_passed, describe_rungs, plan_rungs
from ablations.search.search import make_search
from ablations.search.spaces import SPACES
from ablations.tables.scales import SCALES
from transformer.config import override


@pytest.mark.parametrize("pruner", ["hyperband", "median"])
def test_rungs_are_validations_after_the_longest_warm_up(pruner: Pruner) -> None:
    for name in ("base_lr", "regularisation", "shape"):
        for scale in SCALES:
            search = make_search(SPACES[name], scale, trials=7, seed=1)
            training = search.base.training
            longest = max(
                [int(x.high) for x in search.parameters if x.name == "warmup_steps"]
                or [training.warmup_steps]
            )
            rungs = plan_rungs(pruner, search.base, search.parameters)
            assert rungs, (name, scale.name)
            assert longest < rungs[0] <= longest + training.validate_every_steps
            assert rungs[-1] < training.max_steps
            assert all(step % training.validate_every_steps == 0 for step in rungs)


def test_where_trials_are_pruned_or_why_not_is_said() -> None:
    search = make_search(SPACES["shape"], SCALES[1], trials=7, seed=1)
    assert describe_rungs("hyperband", search.base, search.parameters) == (
        "Hyperband keeps about a third of the trials at steps 2,668, 8,004, after the longest "
        "warm-up that the space allows (1,600). A part of them, Hyperband's later brackets, skips "
        "the first."
    )
    assert "(1,600)" in describe_rungs("median", search.base, search.parameters)
    assert "--pruner none" in describe_rungs("none", search.base, search.parameters)
    long = override(search.base, warmup_steps=11_000)
    assert plan_rungs("hyperband", long, search.parameters) == ()
    assert describe_rungs("hyperband", long, search.parameters) == (
        "No trial is pruned: the longest warm-up that the space allows (11,000) leaves no "
        "validation before the last step."
    )


def test_those_that_went_on_are_counted() -> None:
    ends = [(100, True), (200, True), (300, False), (450, True), (900, False), (50, False)]
    assert count_passed((200, 400), ends) == (
        "trials: 3 of 4 went on from step 200, 1 of 2 went on from step 400"
    )
    assert count_passed((200,), [(199, False)]) == ""
    assert count_passed((200,), [(200, False)]) == "trials: 0 of 1 went on from step 200"
