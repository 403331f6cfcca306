"""Runs that end sooner than configured, and continue later."""

from __future__ import annotations

from pathlib import Path

import pytest

from experiments.records.checkpoints import step_checkpoints
from experiments.records.experiment import Limits
from experiments.records.outputs import METRICS_FILE
from experiments.records.result import load_result
from experiments.run import run
from tests.experiments.samples import (
    assert_same_end,
    copy_of,
    forget_result,
    last_checkpoint,
    outcome,
    result_of,
    tiny_experiment,
)


def _files(directory: Path) -> dict[Path, int]:
    """What stands in a directory, by when it was written."""
    found = (p for p in directory.rglob("*") if p.is_file() and p.name != ".lock")
    return {path: path.stat().st_mtime_ns for path in found}


def _course(directory: Path) -> tuple[list[str], list[int], int]:
    """The steps of the metrics, those of the checkpoints, and the epoch."""
    metrics = (directory / METRICS_FILE).read_text(encoding="utf-8").splitlines()
    return (
        [line.partition(",")[0] for line in metrics],
        [step for step, _ in step_checkpoints(directory)],
        last_checkpoint(directory)["epoch"],
    )


@pytest.mark.parametrize("limits", [None, Limits(max_steps=5)])
def test_a_finished_run_started_again_does_nothing(
    limits: Limits | None, finished: Path, folder: Path
):
    before = _files(finished)
    assert run(tiny_experiment(folder), finished, limits=limits) == load_result(finished)
    assert _files(finished) == before


@pytest.mark.parametrize("stop", [10, 13])
def test_a_run_ended_by_max_steps_continues_as_if_it_had_not_been(
    stop: int,
    finished: Path,
    folder: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
):
    monkeypatch.setenv("WANDB_MODE", "disabled")
    experiment = tiny_experiment(folder)
    first = result_of(experiment, tmp_path, limits=Limits(max_steps=stop))
    assert first.steps == stop
    assert first == load_result(tmp_path)
    run(experiment, tmp_path)
    assert_same_end(tmp_path, finished)


@pytest.mark.parametrize("limits", [None, Limits(max_steps=5)])
def test_a_run_that_was_stopped_before_its_evaluation_is_only_evaluated(
    limits: Limits | None,
    finished: Path,
    folder: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
):
    monkeypatch.setenv("WANDB_MODE", "disabled")
    directory = copy_of(finished, tmp_path / "run")
    before = load_result(directory)
    forget_result(directory)
    after = result_of(tiny_experiment(folder), directory, limits=limits)
    assert outcome(directory) == outcome(finished)
    assert before is not None
    # The checkpoint was written just before the clock stopped; evaluation is no training.
    assert before.train_seconds / 2 < after.train_seconds <= before.train_seconds


def test_a_run_ends_when_its_minutes_are_up_and_is_scored(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setenv("WANDB_MODE", "disabled")
    experiment = tiny_experiment(folder, max_steps=100_000)
    limits = Limits(max_minutes=0.5 / 60)
    result = result_of(experiment, tmp_path, limits=limits)
    assert 0 < result.steps < 100_000
    assert result.train_seconds >= 0.5
    assert run(experiment, tmp_path, limits=limits) == result
    seconds = result.train_seconds + 0.5
    longer = result_of(experiment, tmp_path, limits=Limits(max_minutes=seconds / 60))
    assert longer.steps > result.steps
    assert longer.train_seconds >= seconds


def test_a_run_may_continue_with_another_number_of_parts(
    finished: Path, folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    """Steps, epochs, validations and checkpoints stay where they were."""
    monkeypatch.setenv("WANDB_MODE", "disabled")
    experiment = tiny_experiment(folder)
    run(experiment, tmp_path, accumulate=3, limits=Limits(max_steps=13))
    result = result_of(experiment, tmp_path, accumulate=2)
    expected = load_result(finished)
    assert expected is not None and result.source_tokens == expected.source_tokens
    assert _course(tmp_path) == _course(finished)
