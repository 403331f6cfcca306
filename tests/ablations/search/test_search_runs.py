"""The trials of a search, sampled and pruned by Optuna, with trainings that end at once."""

from __future__ import annotations

import math
import os
import re
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any, cast

import pytest
from optuna.trial import FrozenTrial, TrialState

from ablations.files import STUDY_FILE
from ablations.folder import SearchFolder
from ablations.runs.attempts import clear_failures, leave_pruned
from ablations.runs.search_runs import SearchRuns
from ablations.runs.study import Study
from ablations.search.search import claim_search
from ablations.search.trials import best
from tests.ablations.search.samples import (
    bowl,
    give_up,
    journal,
    leave,
    search_of,
    small_search,
    work_on,
)
from transformer.config import override
from transformer.errors import InputError


@pytest.mark.parametrize("pruner", ["hyperband", "median"])
def test_poor_trials_are_pruned_at_rungs_and_good_ones_found(tmp_path: Path, pruner: str) -> None:
    search = small_search(tmp_path, trials=17, pruner=pruner)
    work_on(tmp_path, bowl)
    trials = SearchFolder(tmp_path).trials()
    pruned = [trial for trial in trials if trial.state == "pruned"]
    assert pruned and sum(trial.state == "done" for trial in trials) == 17 - len(pruned)
    assert {trial.step for trial in pruned} <= set(search.rungs)
    assert all(trial.step > cast("int", trial.values["warmup_steps"]) for trial in pruned)
    assert all(x.perplexity == pytest.approx(x.curve[x.step], rel=1e-5) for x in pruned)
    found, first = best(trials), trials[0]
    assert found and found.perplexity is not None
    assert first.values == search.values(search.base) and first.perplexity is not None
    assert found.perplexity < first.perplexity
    for trial, told in zip(trials, journal(tmp_path), strict=True):
        assert told.params == dict(trial.values)
        assert told.value == pytest.approx(trial.perplexity, rel=1e-5)
        assert told.last_step == (trial.step if trial.state == "pruned" else max(trial.curve))


def test_no_trial_is_pruned_at_its_last_validation_as_nothing_is_left_to_save(
    tmp_path: Path,
) -> None:
    search = search_of()
    base = override(search.base, validate_every_steps=750)
    claim_search(tmp_path, replace(search, base=base))
    study = Study(SearchRuns(tmp_path))
    study.begin("trial-0000")
    assert study.prunes_at("trial-0000", {750: 3.0, 1_500: 3.0}) is None
    assert list(journal(tmp_path)[0].intermediate_values) == [750]


@pytest.fixture(scope="module")
def undisturbed(tmp_path_factory: pytest.TempPathFactory) -> dict[str, list[FrozenTrial]]:
    """The trials of a search by its pruner."""
    found: dict[str, list[FrozenTrial]] = {}
    for pruner in ("none", "hyperband"):
        root = tmp_path_factory.mktemp(pruner)
        small_search(root, trials=11, pruner=pruner)
        work_on(root, bowl)
        found[pruner] = journal(root)
    assert {trial.state for trial in found["none"]} == {TrialState.COMPLETE}
    return found


@pytest.mark.parametrize(
    "damage",
    [
        *("killed", "deleted", "zeroed"),
        *(pytest.param(name, marks=pytest.mark.slow) for name in ("cut", "flipped")),
    ],
)
def test_trials_and_their_order_are_the_same_whatever_happens_to_the_driver_and_its_journal(
    tmp_path: Path, undisturbed: dict[str, list[FrozenTrial]], damage: str
) -> None:
    root = tmp_path / "dis?turbed#1%41"
    pruner = "hyperband" if damage == "killed" else "none"  # a lost journal has the passed rungs
    small_search(root, trials=11, pruner=pruner)
    for _ in range(3):
        work_on(root, bowl, count=2)
        planned = SearchRuns(root)
        begun = len(journal(root))
        # A driver that is killed leaves a trial that has begun, here after its first validation.
        values = planned.search.values(Study(planned).begin(planned.names[begun]).config)
        step = planned.search.base.training.validate_every_steps
        attempt = root / f"{planned.names[begun]}.attempt-1"
        leave(planned.search, attempt, values, until=step, perplexity=bowl(values))
        path = root / STUDY_FILE
        content = path.read_bytes()
        damaged = {
            "killed": content,
            "cut": content[:-9],
            "zeroed": bytes(len(content) // 2) + content[len(content) // 2 :],
            "flipped": content.replace(b"study_id", b"study_ie"),
        }
        if damage == "deleted":
            path.unlink()
        else:
            path.write_bytes(damaged[damage])
        if damage in ("zeroed", "flipped"):
            with pytest.warns(UserWarning, match="study.log is damaged and is rebuilt"):
                Study(SearchRuns(root))
    work_on(root, bowl)
    for found, expected in zip(journal(root), undisturbed[pruner], strict=True):
        assert (found.number, found.state) == (expected.number, expected.state)
        assert found.params == expected.params
        assert found.value == pytest.approx(expected.value, rel=1e-5)


def test_a_trial_that_was_given_up_is_told_as_failed_and_tried_again_with_its_values(
    tmp_path: Path,
) -> None:
    search = small_search(tmp_path)
    give_up(search, tmp_path, "trial-0000", search.first(), "RuntimeError: disk")
    leave(search, tmp_path / "trial-0001.attempt-1", search.first(), until=0)
    failed, running, waiting = SearchFolder(tmp_path).trials()[:3]
    assert (failed.state, failed.reason) == ("failed", "RuntimeError: disk")
    assert (running.state, waiting.state) == ("running", "waiting")
    Study(SearchRuns(tmp_path))
    assert [x.state for x in journal(tmp_path)] == [TrialState.FAIL, TrialState.WAITING]
    clear_failures(tmp_path / "trial-0000")
    planned = SearchRuns(tmp_path)
    study = Study(planned)
    assert search.values(study.begin("trial-0000").config) == search.first()
    assert [x.state for x in journal(tmp_path)] == [TrialState.RUNNING, TrialState.WAITING]
    study.end("trial-0000", None)
    assert journal(tmp_path)[0].state == TrialState.FAIL


def test_a_search_continues_where_its_driver_died_before_it_published_a_trial(
    tmp_path: Path,
) -> None:
    """A copy may have later trials alone: its first is the base nevertheless."""
    search = small_search(tmp_path)
    unpublished, values = tmp_path / "trial-0002.attempt-1", search.first()
    leave(search, unpublished, values | {"learning_rate_factor": 0.7}, until=3)
    leave_pruned(unpublished, 3, 9.0)
    study = Study(SearchRuns(tmp_path))
    found = [search.values(study.begin(name).config) for name in search.names[:3]]
    assert found[0] == values and found[2]["learning_rate_factor"] == 0.7


def test_a_trial_of_another_search_is_left_out(tmp_path: Path) -> None:
    search = small_search(tmp_path)
    other = search_of(seed=2)
    leave(other, tmp_path / "trial-0000", other.first())
    leave(search, tmp_path / "trial-0001", search.first() | {"learning_rate_factor": 77.0})
    Study(SearchRuns(tmp_path))
    assert [x.state for x in journal(tmp_path)] == [TrialState.FAIL, TrialState.FAIL]
    assert "is not a trial of this search" in SearchFolder(tmp_path).trials()[0].reason


def test_a_trial_under_way_whose_configuration_is_damaged_continues_with_that_of_the_journal(
    tmp_path: Path,
) -> None:
    search = small_search(tmp_path)
    study, known = Study(SearchRuns(tmp_path)), list[Any]()
    for name in search.names[:3]:
        known.append(search.values(study.begin(name).config))
        leave(search, tmp_path / f"{name}.attempt-1", known[-1], until=0)
    damaged = tmp_path / f"{search.names[1]}.attempt-1" / "config.json"
    damaged.write_text("{")
    study = Study(SearchRuns(tmp_path))
    again = [search.values(study.begin(name).config) for name in search.names[:4]]
    assert again[:3] == known
    (tmp_path / STUDY_FILE).unlink()
    with pytest.raises(InputError, match=rf"{damaged} cannot be read and study.log"):
        Study(SearchRuns(tmp_path))


def told(root: Path) -> list[tuple[Any, ...]]:
    return [(x.state, x.params, x.values, x.intermediate_values) for x in journal(root)]


def other_search(root: Path) -> None:
    """Leave the journal of a search whose trials have other numbers, states and values."""
    small_search(root, trials=5)
    work_on(root, lambda _: 2.0)


@pytest.mark.filterwarnings("ignore:.*study.log is damaged")
@pytest.mark.parametrize(
    "damage",
    [
        *("garbage", "directory", "contradicts"),
        *(
            pytest.param(name, marks=pytest.mark.slow)
            for name in ("strange", "pipe", "other", "unsuitable")
        ),
    ],
)
def test_whatever_is_wrong_with_the_journal_the_files_decide(tmp_path: Path, damage: str) -> None:
    root = tmp_path / "search"
    small_search(root, trials=4, pruner="hyperband")
    work_on(root, bowl, count=3)
    Study(SearchRuns(root))
    expected, path = told(root), root / STUDY_FILE
    content = path.read_bytes()
    if damage == "garbage":
        path.write_bytes(content + b"\xff\x00{[\n" + content)
    elif damage == "strange":
        path.write_bytes(content + b'{"op_code": 999}\n{"op_code": []}\nnull\n')
    elif damage in ("directory", "pipe"):
        path.unlink()
        (path.mkdir if damage == "directory" else lambda: os.mkfifo(path))()
        if damage == "directory":
            (path / "mine.txt").touch()
    elif damage == "contradicts":
        other_search(tmp_path / "other")
        path.write_bytes((tmp_path / "other" / STUDY_FILE).read_bytes())
    elif damage == "other":
        path.write_bytes(content.replace(b"base_lr-tiny", b"base_lr-tinx"))
    else:  # a trial that has not begun, with values that the space does not have
        Study(SearchRuns(root)).begin("trial-0003")
        path.write_bytes(re.sub(rb"(warmup_steps\W+\w+_internal\W+)[\d.]+", rb"\g<1>9e9", content))
    Study(SearchRuns(root))
    assert told(root)[:3] == expected[:3]
    if damage == "directory":
        assert [x.name for x in root.glob("study.log.*.broken/*")] == ["mine.txt"]
    work_on(root, bowl)
    assert best(SearchFolder(root).trials()) is not None


def test_a_trial_that_diverges_is_pruned_for_the_sampler(tmp_path: Path) -> None:
    search = small_search(tmp_path, trials=11)
    leave(search, tmp_path / "trial-0000", search.first(), until=0)
    leave_pruned(tmp_path / "trial-0000", 7, math.inf)  # before a validation

    def steep(values: Mapping[str, Any]) -> float:
        return math.inf if values["learning_rate_factor"] > 0.6 else bowl(values)

    work_on(tmp_path, steep)
    trials = SearchFolder(tmp_path).trials()
    diverged = [trial for trial in trials if trial.state == "diverged"]
    assert len(diverged) > 1 and all(x.perplexity is None and x.reason for x in diverged)
    known = journal(tmp_path)
    assert all(known[trials.index(trial)].state == TrialState.PRUNED for trial in diverged)
    assert known[0].value is None
    assert best(trials) is not None


@pytest.mark.parametrize(("trials", "in_vain"), [(23, 10), (3, 3)])
def test_a_search_without_a_finite_perplexity_ends(
    tmp_path: Path, trials: int, in_vain: int
) -> None:
    search = small_search(tmp_path, trials=trials)
    for name in search.names[:in_vain]:
        give_up(search, tmp_path, name, {**search.first()}, "training diverged at step 7")
    planned = SearchRuns(tmp_path)
    with pytest.raises(InputError) as error:
        Study(planned).begin(search.names[-1])
    assert str(error.value).startswith(
        f"none of {in_vain} trials of base_lr-tiny had a finite perplexity (the last: training "
        "diverged at step 7): narrow the space"
    )
