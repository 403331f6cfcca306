"""A search's directory, and what the sampler draws."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import optuna
import pytest

from ablations.search.rungs import count_passed, describe_rungs
from ablations.search.sampler import FeasibleSampler, check_feasible, distributions
from ablations.search.search import (
    Pruner,
    Sampler,
    claim_search,
    load_search,
    make_search,
    settle_search,
)
from ablations.search.space import Space, choice, uniform
from ablations.search.spaces import BASE_LR, REGULARISATION, SHAPE, SPACES
from ablations.tables.plan import claim_plan
from ablations.tables.scales import QUICK, SCALES, SMALL
from tests.ablations.samples import TINY, small_plan
from tests.ablations.search.samples import small_search
from transformer.config import override
from transformer.errors import InputError
from transformer.evaluation.counts import count_parameters


def test_a_search_is_read_back_as_it_was_claimed(tmp_path: Path) -> None:
    claimed = small_search(tmp_path, space=SHAPE, seed=5)
    assert load_search(tmp_path) == claimed
    assert claimed.base.training.seed == 5
    assert claimed.max_parameters == count_parameters(claimed.base.model)
    assert claimed.names[::6] == ("trial-0000", "trial-0006")


def test_more_trials_extend_it_and_fewer_do_not_shorten_it(tmp_path: Path) -> None:
    small_search(tmp_path, trials=7)
    assert small_search(tmp_path, trials=11).trials == 11
    again = small_search(tmp_path, trials=3)
    assert again.trials == 11


def test_a_space_may_say_how_often_its_trials_are_validated() -> None:
    own = replace(BASE_LR, base=override(BASE_LR.base, validate_every_steps=15))
    ours, theirs = (make_search(x, TINY, trials=1, seed=1) for x in (BASE_LR, own))
    assert ours.base.training.validate_every_steps == 1_500 // 9 + 1
    assert theirs.base.training.validate_every_steps == 15


def test_another_search_is_refused_with_the_difference(tmp_path: Path) -> None:
    small_search(tmp_path)
    wider = Space(
        name="base_lr",
        title="",
        parameters=(uniform("learning_rate_factor", 0.1, 8.0, log=True), BASE_LR.parameters[1]),
    )
    for space, scale, seed, difference in (
        (BASE_LR, QUICK, 1, "at scale tiny' -> 'base_lr at scale quick"),
        (REGULARISATION, TINY, 1, "'regularisation at scale tiny'"),
        (BASE_LR, TINY, 2, "(base.training.seed: 1 -> 2)"),
        (wider, TINY, 1, "(parameters.learning_rate_factor.high: 4.0 -> 8.0)"),
    ):
        with pytest.raises(InputError, match="belongs to another search") as error:
            claim_search(tmp_path, make_search(space, scale, trials=7, seed=seed))
        assert difference in str(error.value)


def test_the_sampler_and_the_pruner_are_kept_and_no_other_taken(tmp_path: Path) -> None:
    search = make_search(REGULARISATION, TINY, trials=7, seed=1)
    chosen = settle_search(tmp_path, search, sampler="cmaes", pruner="median")
    claim_search(tmp_path, chosen)
    again = claim_search(tmp_path, settle_search(tmp_path, search))
    assert (again.sampler, again.pruner) == ("cmaes", "median")
    with pytest.raises(InputError, match=r"\(pruner: 'median' -> 'none'\)"):
        claim_search(tmp_path, settle_search(tmp_path, search, pruner="none"))
    with pytest.raises(InputError, match="'shape' has choices alone, and CMA-ES models numbers"):
        settle_search(tmp_path / "b", make_search(SHAPE, TINY, trials=7, seed=1), sampler="cmaes")


def test_values_are_known_in_the_units_of_the_space() -> None:
    search = make_search(BASE_LR, QUICK, trials=7, seed=1)
    assert search.values(search.base) == {"learning_rate_factor": 0.5, "warmup_steps": 500}
    assert search.declare(search.values(search.base)) == {
        "learning_rate_factor": 0.5,
        "warmup_steps": 500 * 100_000 // 1_600,
    }
    for space in (BASE_LR, SHAPE, REGULARISATION):
        search = make_search(space, QUICK, trials=7, seed=1)
        for ours, theirs in zip(search.parameters, space.parameters, strict=True):
            found = [ours.unmapped(value, theirs) for value in (ours.bounds[0], ours.bounds[-1])]
            assert found == pytest.approx([theirs.bounds[0], theirs.bounds[-1]])


def test_a_tables_directory_is_refused(tmp_path: Path) -> None:
    claim_plan(tmp_path, small_plan())
    with pytest.raises(InputError, match="belongs to a table"):
        small_search(tmp_path)
    with pytest.raises(InputError, match=r"is not the directory of a search: it has no search\.js"):
        load_search(tmp_path)


def test_no_trials_are_refused() -> None:
    with pytest.raises(InputError, match="--trials is 0, but must be at least 1"):
        make_search(BASE_LR, TINY, trials=0, seed=1)


@pytest.mark.parametrize("pruner", ["hyperband", "median"])
@pytest.mark.parametrize("name", ["base_lr", "regularisation", "shape"])
def test_rungs_are_validations_after_the_longest_warm_up(name: str, pruner: Pruner) -> None:
    for scale in SCALES:
        search = replace(make_search(SPACES[name], scale, trials=7, seed=1), pruner=pruner)
        training = search.base.training
        longest = max(
            [int(x.high) for x in search.parameters if x.name == "warmup_steps"]
            or [training.warmup_steps]
        )
        assert longest < search.rungs[0] <= longest + training.validate_every_steps
        assert search.rungs[-1] < training.max_steps
        assert all(step % training.validate_every_steps == 0 for step in search.rungs)


def test_where_trials_are_pruned_or_why_not_is_said() -> None:
    search = make_search(SHAPE, SMALL, trials=7, seed=1)
    assert describe_rungs(search) == (
        "Hyperband keeps about a third of the trials at steps 2,668, 8,004, after the longest "
        "warm-up that the space allows (1,600). A part of them, Hyperband's later brackets, skips "
        "the first."
    )
    assert "(1,600)" in describe_rungs(replace(search, pruner="median"))
    assert "--pruner none" in describe_rungs(replace(search, pruner="none"))
    long = replace(search, base=override(search.base, warmup_steps=11_000))
    assert long.rungs == ()
    assert describe_rungs(long) == (
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


def test_samples_stay_within_the_budget() -> None:
    search = make_search(SHAPE, TINY, trials=30, seed=3)
    study = optuna.create_study(sampler=FeasibleSampler(search))
    for _ in range(23):
        trial = study.ask(distributions(search))
        assert search.is_feasible(trial.params)
        study.tell(trial, float(trial.params["d_model"]))
    assert {trial.params["num_heads"] for trial in study.trials} > {8}


@pytest.mark.parametrize(
    ("sampler", "trials", "learns"),
    [("tpe", 59, True), ("cmaes", 79, True), ("random", 79, False)],
)
def test_the_sampler_learns_from_earlier_trials(
    sampler: Sampler, trials: int, learns: bool
) -> None:
    """Where nine tenths of even draws are poor, most of the later ones are not."""
    space = replace(REGULARISATION, parameters=(*REGULARISATION.parameters, SHAPE.parameters[3]))
    search = replace(make_search(space, TINY, trials=30, seed=3), sampler=sampler)
    study = optuna.create_study(sampler=FeasibleSampler(search))
    for _ in range(trials):
        trial = study.ask(distributions(search))
        study.tell(trial, abs(trial.params["dropout"] - 0.1))
    later = [abs(trial.params["dropout"] - 0.1) for trial in study.trials[-11:]]
    assert (sum(distance < 0.02 for distance in later) > 3) == learns
    assert len({trial.params["num_heads"] for trial in study.trials}) > 3


def test_samples_depend_on_the_seed_and_the_trial_only() -> None:
    def draw(seed: int, skip: int = 0) -> list[dict[str, float]]:
        search = make_search(BASE_LR, TINY, trials=9, seed=seed)
        study = optuna.create_study(sampler=FeasibleSampler(search))
        study.add_trials([optuna.trial.create_trial(value=1.0)] * skip)
        return [study.ask(distributions(search)).params for _ in range(3)]

    drawn = draw(1)
    assert len({json.dumps(values) for values in drawn}) == 3
    assert draw(1) == drawn
    assert draw(2) != drawn
    assert draw(1, skip=1)[:2] == drawn[1:]


def test_a_space_without_a_model_within_its_budget_is_refused() -> None:
    large = Space(name="large", title="", parameters=(choice("d_model", 1024, 2048),), budget=1.0)
    search = make_search(large, TINY, trials=3, seed=1)
    assert search.first() == {}
    with pytest.raises(InputError, match=r"no model of at most .* parameters among .* drawn"):
        check_feasible(search)
