"""Runs that were killed, stopped or short of room end as if they had not been."""

from __future__ import annotations

import signal
from pathlib import Path
from random import Random

import pytest

from experiments.records.experiment import Limits
from experiments.records.outputs import read_metrics, step_checkpoints
from experiments.records.ownership import claim
from experiments.records.progress import STOPPED_EXIT_CODE
from experiments.records.result import load_result
from experiments.run import run
from tests.experiments.conftest import Command, Start
from tests.experiments.samples import (
    assert_same_end,
    last_checkpoint,
    outcome,
    result_of,
    tiny_experiment,
)

_KILLS = (signal.SIGKILL, signal.SIGTERM, signal.SIGINT)


def _steps(directory: Path) -> int:
    """The last step that was logged."""
    return max((int(line[0]) for line in read_metrics(directory)), default=0)


@pytest.mark.parametrize(
    ("times", "seed"), [(2, 0), *(pytest.param(7, seed, marks=pytest.mark.slow) for seed in (1, 2))]
)
def test_a_run_killed_repeatedly_ends_as_an_undisturbed_one(
    times: int, seed: int, finished: Path, folder: Path, begin: Start, tmp_path: Path
):
    directory, random, late = tmp_path / "run", Random(seed), 0
    words = ("ablations.runs.entry", directory, "1", "none")
    claim(directory, tiny_experiment(folder))
    for number in range(times):  # at random steps
        stop = _steps(directory) + random.randint(1, 20 // times)
        running = begin(*words, stdin=None)
        running.wait_until(lambda stop=stop: _steps(directory) >= stop)
        how = _KILLS[(seed + number) % len(_KILLS)]
        ended = running.finish(how)
        late += ended.code == 0
        assert ended.code in (0, -how if how == signal.SIGKILL else STOPPED_EXIT_CODE), ended
    assert late < times
    ended = begin(*words, stdin=None).finish()
    assert ended.code == 0, ended
    assert_same_end(directory, finished)


def _course(directory: Path) -> tuple[list[str], list[int], int]:
    """The steps of the metrics, those of the checkpoints, and the epoch."""
    metrics = [line[0] for line in read_metrics(directory)]
    steps = [step for step, _ in step_checkpoints(directory)]
    return metrics, steps, last_checkpoint(directory)["epoch"]


@pytest.mark.parametrize("limits", [None, Limits(max_steps=5)])
def test_a_finished_run_started_again_does_nothing_and_is_only_evaluated_without_a_result(
    limits: Limits | None, copy: Path, finished: Path, folder: Path
):
    experiment = tiny_experiment(folder)
    written = {path: path.stat().st_mtime_ns for path in copy.rglob("*.*")}
    before = result_of(experiment, copy, limits=limits)
    assert before == load_result(finished)
    assert {path: path.stat().st_mtime_ns for path in written} == written
    (copy / "result.json").unlink()
    after = result_of(experiment, copy, limits=limits)
    assert outcome(copy) == outcome(finished)
    # The checkpoint was written just before the clock stopped; evaluation is no training.
    assert before.train_seconds / 2 < after.train_seconds <= before.train_seconds


def test_a_run_ended_by_max_steps_continues_as_if_it_had_not_been(
    finished: Path, folder: Path, tmp_path: Path
):
    experiment = tiny_experiment(folder)
    first = result_of(experiment, tmp_path, limits=Limits(max_steps=13))
    assert first.steps == 13 and first == load_result(tmp_path)
    run(experiment, tmp_path)
    assert_same_end(tmp_path, finished)


def test_a_run_ends_when_its_minutes_are_up_and_is_scored(folder: Path, tmp_path: Path):
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
    finished: Path, folder: Path, tmp_path: Path
):
    """Steps, epochs, validations and checkpoints stay where they were."""
    experiment = tiny_experiment(folder)
    run(experiment, tmp_path, accumulate=3, limits=Limits(max_steps=13))
    result = result_of(experiment, tmp_path, accumulate=2)
    expected = load_result(finished)
    assert expected is not None and result.source_tokens == expected.source_tokens
    assert _course(tmp_path) == _course(finished)


def test_a_checkpoint_that_does_not_fit_ends_the_run_in_one_line(
    finished: Path, folder: Path, command: Command, tmp_path: Path
):
    directory = tmp_path / "run"
    run(tiny_experiment(folder), directory, limits=Limits(max_steps=20))
    (directory / "result.json").unlink()
    _, newest = step_checkpoints(directory)[-1]
    size = newest.stat().st_size
    ended = command(
        "ablations.runs.entry", directory, "1", "none", stdin=None, largest_file=size // 2
    )
    assert ended.code == 2
    assert ended.lines[-1] == f"[Errno 27] File too large: '{newest.with_stem('step-00000030')}'"
    assert "Traceback" not in ended.stderr
    assert [step for step, _ in step_checkpoints(directory)] == [10, 20]
    assert not [path for path in directory.rglob("*") if ".part" in path.name]
    run(tiny_experiment(folder), directory)
    assert_same_end(directory, finished)
