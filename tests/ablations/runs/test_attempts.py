"""Who takes a run over, who ends it, and what a failure leaves."""

from __future__ import annotations

from pathlib import Path

import pytest

from ablations.runs.attempts import attempt_number, locate, record_failure, take_over
from experiments.records.attempt import Attempt, read_attempt, write_attempt
from experiments.records.progress import Progress, RunState, write_progress


def begin_attempt(stem: Path) -> Path:
    directory = take_over(stem)
    assert directory is not None
    count = attempt_number(directory)
    begun = Attempt(cell="c", number=count, worker="w", host="h", started_at=1.0)
    write_attempt(directory, begun)
    return directory


def test_the_next_attempt_has_the_files_and_the_earlier_one_can_write_nothing(
    tmp_path: Path,
) -> None:
    stem = tmp_path / "base" / "seed-1"
    assert locate(stem) == stem
    first = begin_attempt(stem)
    (first / "step").write_text("5")
    (first / ".lock-1").touch()
    second = begin_attempt(stem)
    assert (second.name, (second / "step").read_text()) == ("seed-1.attempt-2", "5")
    assert locate(stem) == second and not (second / ".lock-1").exists()
    with pytest.raises(FileNotFoundError):
        write_progress(first, Progress(stage=RunState.TRAIN))
    assert not record_failure(first, "broke", [], killed=False, retries=0)
    assert not first.exists()
    left = read_attempt(second)
    assert left is not None and not left.failures


def test_the_tenth_attempt_is_newer_than_the_ninth(tmp_path: Path) -> None:
    for count in (9, 10, 2):
        (tmp_path / f"seed-1.attempt-{count}").mkdir()
    assert attempt_number(locate(tmp_path / "seed-1")) == 10


def test_an_unfinished_run_without_a_number_is_taken_over_too(tmp_path: Path) -> None:
    stem = tmp_path / "seed-1"
    stem.mkdir()
    (stem / "config.json").write_text("{}")
    assert begin_attempt(stem).name == "seed-1.attempt-1"


def test_kills_count_only_if_none_makes_progress(tmp_path: Path) -> None:
    directory = begin_attempt(tmp_path / "seed-1")
    for step in range(1, 30):
        write_progress(directory, Progress(stage=RunState.TRAIN, step=step, max_steps=99))
        assert not record_failure(directory, "killed", [], killed=True, retries=0)
    ends = [record_failure(directory, "killed", [], killed=True, retries=0) for _ in range(9)]
    assert ends == [False] * 8 + [True]
