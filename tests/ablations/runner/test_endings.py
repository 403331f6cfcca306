"""How a process ended: by its own word, else by its exit code."""

from __future__ import annotations

import time
from pathlib import Path

import pytest

from ablations.runner.endings import Ending, conclude, ending
from experiments.run.attempt import Failure
from experiments.run.files import write_json
from experiments.run.progress import Progress, Stage, read_progress, write_progress


@pytest.mark.parametrize(
    ("code", "expected"),
    [(0, "finished"), (2, "refused"), (75, "stopped"), (1, "crashed"), (-9, "crashed")],
)
def test_without_a_word_the_exit_code_tells(code: int, expected: Ending, tmp_path: Path):
    started_at = time.time()
    assert ending(tmp_path, code, started_at) == expected
    write_progress(tmp_path, Progress(stage=RunState.TRAIN, step=3))
    assert ending(tmp_path, code, started_at) == expected


@pytest.mark.parametrize(
    ("written", "shown"),
    [
        ("\x1b[31;1mred\x1b[0m and\x07 \x1b]0;title\x07more", "red and more"),
        ("a\ttab, a\r\nline", "a tab, a  line"),
        ("über 語 \u202e.", "über 語 ."),
    ],
)
def test_no_reason_writes_to_a_terminal_but_plain_text(written: str, shown: str, tmp_path: Path):
    write_json(tmp_path / "progress.json", {"stage": "failed", "message": written})
    progress = read_progress(tmp_path)
    assert progress is not None and progress.message == shown
    failure = Failure(attempt=1, reason=written, lines=(written,), at=0.0)
    assert (failure.reason, failure.lines) == (shown, (shown,))


@pytest.mark.parametrize(
    ("stage", "expected"),
    [("done", "finished"), ("refused", "refused"), ("stopped", "stopped"), ("failed", "crashed")],
)
def test_its_word_comes_before_the_exit_code(stage: Stage, expected: Ending, tmp_path: Path):
    started_at = time.time()
    conclude(tmp_path, stage, "why", started_at=started_at)
    assert ending(tmp_path, 17, started_at) == expected
    assert ending(tmp_path, 17, time.time() + 1) == "crashed"  # of a later process it says nothing


def test_the_word_keeps_how_far_the_run_was(tmp_path: Path):
    write_progress(tmp_path, Progress(stage=RunState.TRAIN, step=3, max_steps=7, seconds_left=2.0))
    conclude(tmp_path, "stopped", "why", step=5, started_at=time.time())
    found = read_progress(tmp_path)
    assert found is not None
    assert (found.stage, found.step, found.max_steps, found.message) == ("stopped", 5, 7, "why")
    assert found.seconds_left is None


def test_the_first_word_stands(tmp_path: Path):
    """A rank fails for want of memory, and then another because the first is gone."""
    started_at = time.time()
    conclude(tmp_path, "failed", "out of memory", started_at=started_at)
    conclude(tmp_path, "failed", "connection closed", started_at=started_at)
    found = read_progress(tmp_path)
    assert found is not None and found.message == "out of memory"
    conclude(tmp_path, "stopped", "at the next attempt", started_at=time.time())
    found = read_progress(tmp_path)
    assert found is not None and found.stage == "stopped"


def test_where_the_directory_has_gone_nothing_is_made(tmp_path: Path):
    conclude(tmp_path / "gone", "stopped", "why", started_at=0.0)
    assert not (tmp_path / "gone").exists()
