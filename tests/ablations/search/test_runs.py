"""A search as a set of runs, with trials that end at once."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any, cast

import pytest
from optuna.trial import TrialState

from ablations.files import STUDY_FILE
from ablations.runner.queue import Queue
from ablations.runner.storage import Heartbeat, open_storage
from ablations.runner.storage_url import storage_url
from ablations.search.claim import claim_search
from ablations.search.rungs import Pruner
from ablations.search.runs import SearchRuns
from ablations.search.search import make_search
from ablations.search.space import whole
from ablations.search.spaces import BASE_LR
from ablations.search.trials import best, read_trial, read_trials
from experiments.run.results import valid_perplexities
from tests.ablations.samples import TINY, empty_study
from tests.ablations.search.samples import bowl, give_up, leave, small_search, work_on
from transformer.config import override
from transformer.errors import InputError


def nowhere(_: Mapping[str, Any]) -> float:
    return math.nan


@pytest.mark.parametrize("pruner", ["none", "hyperband", "median"])
def test_poor_trials_are_pruned_at_rungs_and_good_ones_found(
    tmp_path: Path, pruner: Pruner
) -> None:
    search = small_search(tmp_path, trials=17, pruner=pruner)
    study = work_on(SearchRuns(tmp_path), bowl)
    trials = read_trials(search, tmp_path)
    pruned = [trial for trial in trials if trial.state == "pruned"]
    assert bool(pruned) == (pruner != "none")
    assert sum(trial.state == "done" for trial in trials) == len(trials) - len(pruned)
    assert {trial.step for trial in pruned} <= set(search.rungs)
    assert all(trial.step > cast("int", trial.values["warmup_steps"]) for trial in pruned)
    assert all(x.perplexity == pytest.approx(x.curve[x.step], rel=1e-5) for x in pruned)
    found, first = best(trials), trials[0]
    assert found and found.perplexity is not None
    assert found.perplexity == study.best_value
    assert found.perplexity < bowl(first.values)
    assert first.values == search.values(search.base)


def test_no_trial_is_pruned_where_the_warm_up_may_last_to_the_end(tmp_path: Path) -> None:
    space = replace(BASE_LR, parameters=(whole("warmup_steps", 500, 95_000),))
    search = small_search(tmp_path, space=space, trials=11)
    work_on(SearchRuns(tmp_path), lambda values: float(values["warmup_steps"]))
    assert {trial.state for trial in read_trials(search, tmp_path)} == {"done"}


def test_the_last_validation_is_not_reported_as_nothing_is_left_to_save(tmp_path: Path) -> None:
    search = make_search(BASE_LR, TINY, trials=3, seed=1)
    search = claim_search(
        tmp_path, replace(search, base=override(search.base, validate_every_steps=750))
    )
    leave(search, tmp_path / "trial-0000", search.first())
    assert list(valid_perplexities(tmp_path / "trial-0000")) == [750, 1_500]
    assert list(SearchRuns(tmp_path).reports(tmp_path / "trial-0000")) == [750]


def test_a_finished_trial_can_be_compared_at_steps_that_it_did_not_report(tmp_path: Path) -> None:
    search, work = small_search(tmp_path), SearchRuns(tmp_path)
    (tmp_path / STUDY_FILE).write_bytes(empty_study())
    with open_storage(storage_url(None, tmp_path), Heartbeat(1, 3)) as storage:
        queue = Queue(storage, work, "here")
        queue.reconcile(judge=False, may_continue=lambda: True)
        claim = queue.take(lambda name: True)
        assert claim is not None
        leave(search, tmp_path / claim.name, claim.trial.params)
        queue.complete(claim)
        told = storage.get_trial(claim.trial._trial_id)
    assert told.state == TrialState.COMPLETE
    assert told.intermediate_values == read_trial(search, tmp_path, claim.name).curve


def test_a_pruned_trial_is_the_same_in_the_study_and_in_the_report(tmp_path: Path) -> None:
    search, work = small_search(tmp_path), SearchRuns(tmp_path)
    every = search.base.training.validate_every_steps
    (tmp_path / STUDY_FILE).write_bytes(empty_study())
    with open_storage(storage_url(None, tmp_path), Heartbeat(1, 3)) as storage:
        queue = Queue(storage, work, "here")
        queue.reconcile(judge=False, may_continue=lambda: True)
        claim = queue.take(lambda name: True)
        assert claim is not None
        directory = tmp_path / claim.name
        leave(search, directory, claim.trial.params, until=every)
        queue.should_prune(claim, work.reports(directory))
        # It was pruned at that step, and came to one more before it ended.
        leave(search, directory, claim.trial.params, until=2 * every)
        work.prune(directory, 2 * every, work.reports(directory)[2 * every])
        queue.complete(claim)
        told = storage.get_trial(claim.trial._trial_id)
    found = read_trial(search, tmp_path, claim.name)
    assert told.state == TrialState.PRUNED
    assert (told.last_step, told.value) == (found.step, found.perplexity) and found.perplexity


def test_a_search_continues_with_a_new_database(tmp_path: Path) -> None:
    small_search(tmp_path, trials=13)
    before = work_on(SearchRuns(tmp_path), bowl, count=9)
    after = work_on(SearchRuns(tmp_path), bowl)
    assert len(after.trials) == 13
    for old, new in zip(before.trials, after.trials, strict=False):
        assert new.state == old.state
        assert new.params == old.params
        assert new.distributions == old.distributions
        assert new.value == pytest.approx(old.value, rel=1e-5)
        assert new.intermediate_values.keys() >= old.intermediate_values.keys()
        assert new.user_attrs["cell"] == old.user_attrs["cell"]


def test_a_trial_that_has_begun_keeps_its_parameters(tmp_path: Path) -> None:
    search = small_search(tmp_path)
    work = SearchRuns(tmp_path)
    assert work.parameters("trial-0000") == search.values(search.base)
    assert work.parameters("trial-0003") == {}
    sampled = {"learning_rate_factor": 0.1 + 0.2, "warmup_steps": 17}
    leave(search, tmp_path / "trial-0003.attempt-2", sampled, until=0)
    assert work.parameters("trial-0003") == sampled
    assert not work.is_done(tmp_path / "trial-0003")


def test_trials_that_are_added_later_are_seen(tmp_path: Path) -> None:
    small_search(tmp_path, trials=3)
    work = SearchRuns(tmp_path)
    assert len(work.names) == 3
    small_search(tmp_path, trials=5)
    assert len(work.names) == 5
    assert work.describe()["trials"] == 5
    assert work.title == "search base_lr at scale tiny"


def test_a_trial_that_diverges_is_pruned_for_the_sampler(tmp_path: Path) -> None:
    search = small_search(tmp_path, trials=11)

    def steep(values: Mapping[str, Any]) -> float:
        return math.inf if values["learning_rate_factor"] > 0.6 else bowl(values)

    work = SearchRuns(tmp_path)
    work_on(work, steep)
    trials = read_trials(search, tmp_path)
    diverged = [trial for trial in trials if trial.state == "diverged"]
    assert diverged and all(trial.perplexity is None and trial.reason for trial in diverged)
    known = work.finished_trial(diverged[0].name)
    assert known and known.state == TrialState.PRUNED
    assert best(trials) is not None


def test_a_result_that_is_not_finite_has_no_values(tmp_path: Path) -> None:
    search = small_search(tmp_path)
    leave(search, tmp_path / "trial-0000", search.first(), perplexity=math.inf)
    known = SearchRuns(tmp_path).finished_trial("trial-0000")
    assert known is not None and known.state == TrialState.PRUNED
    assert read_trials(search, tmp_path)[0].reason == "its perplexity is inf"


def test_a_training_that_diverges_ends_its_trial(tmp_path: Path) -> None:
    search = small_search(tmp_path)
    leave(search, tmp_path / "trial-0000", search.first(), until=0)
    work = SearchRuns(tmp_path)
    work.diverge(tmp_path / "trial-0000", 7)
    known = work.finished_trial("trial-0000")
    assert work.is_done(tmp_path / "trial-0000")
    assert known is not None and known.state == TrialState.PRUNED
    assert read_trials(search, tmp_path)[0].state == "diverged"


@pytest.mark.parametrize(("trials", "in_vain"), [(23, 10), (3, 3)])
def test_a_search_without_a_finite_perplexity_ends(
    tmp_path: Path, trials: int, in_vain: int
) -> None:
    search = small_search(tmp_path, trials=trials)
    for name in search.names[:in_vain]:
        give_up(search, tmp_path, name, {**search.first()}, "training diverged at step 7")
    with pytest.raises(InputError) as error:
        work_on(SearchRuns(tmp_path), nowhere)
    assert str(error.value) == (
        f"none of {in_vain} trials of base_lr-tiny had a finite perplexity (the last: training "
        "diverged at step 7): narrow the space (learning_rate_factor 0.1 to 4.0, warmup_steps 8 to "
        "600) or lower the scale's learning rate, and search in another --directory"
    )


def test_failed_trials_have_a_reason_and_are_unknown_to_the_sampler(tmp_path: Path) -> None:
    search = small_search(tmp_path)
    give_up(search, tmp_path, "trial-0000", search.first(), "RuntimeError: disk")
    leave(search, tmp_path / "trial-0001.attempt-1", search.first(), until=0)
    failed, running, waiting = read_trials(search, tmp_path)[:3]
    assert (failed.state, failed.reason) == ("failed", "RuntimeError: disk")
    assert (running.state, waiting.state) == ("running", "waiting")
    work = SearchRuns(tmp_path)
    assert [work.finished_trial(name) for name in search.names[:3]] == [None] * 3


def test_reports_are_validation_perplexities_by_step(tmp_path: Path) -> None:
    search = small_search(tmp_path)
    every = search.base.training.validate_every_steps
    leave(search, tmp_path / "trial-0000.attempt-1", search.first(), until=2 * every)
    reports = SearchRuns(tmp_path).reports(tmp_path / "trial-0000.attempt-1")
    assert reports == {
        every: pytest.approx(3.0 * 1_500 / every, rel=1e-5),
        2 * every: pytest.approx(1.5 * 1_500 / every, rel=1e-5),
    }
