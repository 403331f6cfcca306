"""How a process ended: by its own record, else by its exit code."""

from __future__ import annotations

import time
from pathlib import Path

import pytest

from experiments.records.attempt import Failure
from experiments.records.progress import (
    Progress,
    RunState,
    final_state,
    read_progress,
    record_end,
    write_progress,
)
from transformer.files import write_json


@pytest.mark.parametrize(
    ("code", "expected"),
    [(0, "done"), (2, "refused"), (75, "stopped"), (1, "failed"), (-9, "failed")],
)
def test_without_a_record_the_exit_code_decides(code: int, expected: str, tmp_path: Path):
    started_at = time.time()
    assert final_state(tmp_path, code, started_at) == expected
    write_progress(tmp_path, Progress(stage=RunState.TRAIN, step=3))
    assert final_state(tmp_path, code, started_at) == expected


@pytest.mark.parametrize(
    ("written", "shown"),
    [
        ("\x1b[31;1mred\x1b[0m and\x07 \x1b]0;title\x07more", "red and more"),
        ("a\ttab, a\r\nline", "a tab, a  line"),
        ("über 語 \u202e.", "über 語 ."),
    ],
)
def test_a_message_is_stripped_of_control_characters(written: str, shown: str, tmp_path: Path):
    write_json(tmp_path / "progress.json", {"stage": "failed", "message": written})
    progress = read_progress(tmp_path)
    assert progress is not None and progress.message == shown
    failure = Failure(attempt=1, reason=written, lines=(written,), at=0.0)
    assert (failure.reason, failure.lines) == (shown, (shown,))


@pytest.mark.parametrize(
    "state", [RunState.DONE, RunState.REFUSED, RunState.STOPPED, RunState.DIVERGED]
)
def test_its_record_takes_precedence_over_the_exit_code(state: RunState, tmp_path: Path):
    started_at = time.time()
    record_end(tmp_path, state, "why", started_at=started_at)
    assert final_state(tmp_path, 17, started_at) == state
    assert final_state(tmp_path, 17, time.time() + 1) == "failed"  # a later process


def test_the_record_keeps_how_far_the_run_was(tmp_path: Path):
    write_progress(tmp_path, Progress(stage=RunState.TRAIN, step=3, max_steps=7, seconds_left=2.0))
    record_end(tmp_path, RunState.STOPPED, "why", step=5, started_at=time.time())
    found = read_progress(tmp_path)
    assert found is not None
    assert (found.stage, found.step, found.max_steps, found.message) == ("stopped", 5, 7, "why")
    assert found.seconds_left is None


def test_the_first_record_stands(tmp_path: Path):
    """One rank runs out of memory, and then another fails because the first is gone."""
    started_at = time.time()
    record_end(tmp_path, RunState.FAILED, "out of memory", started_at=started_at)
    record_end(tmp_path, RunState.FAILED, "connection closed", started_at=started_at)
    found = read_progress(tmp_path)
    assert found is not None and found.message == "out of memory"
    record_end(tmp_path, RunState.STOPPED, "at the next attempt", started_at=time.time())
    found = read_progress(tmp_path)
    assert found is not None and found.stage == "stopped"


def test_a_directory_that_is_gone_is_not_created_again(tmp_path: Path):
    record_end(tmp_path / "gone", RunState.STOPPED, "why", started_at=0.0)
    assert not (tmp_path / "gone").exists()
