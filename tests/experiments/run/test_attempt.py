"""What is known of a start of a run that others may take over."""

from __future__ import annotations

from pathlib import Path

import pytest

from experiments.records.attempt import Attempt, Failure, read_attempt, write_attempt

ATTEMPT = Attempt(
    cell="base/seed-1",
    number=3,
    worker="f00d",
    host="node7",
    devices=(2, 5),
    ranks=2,
    started_at=1.5,
    failures=(Failure(attempt=2, reason="exit code 1", lines=("a", "b"), at=1.25),),
    wandb_ids=("11", "22"),
)


def test_an_attempt_is_read_as_it_was_written(tmp_path: Path):
    write_attempt(tmp_path, ATTEMPT)
    assert read_attempt(tmp_path) == ATTEMPT


def test_a_missing_attempt_is_none(tmp_path: Path):
    assert read_attempt(tmp_path) is None
    assert read_attempt(tmp_path / "taken" / "over") is None


@pytest.mark.parametrize("content", ["", "{}", '{"study": 1}'])
def test_an_unreadable_attempt_is_left_out_with_a_warning(content: str, tmp_path: Path):
    (tmp_path / "attempt.json").write_text(content)
    with pytest.warns(UserWarning, match=r"left out: .*attempt\.json"):
        assert read_attempt(tmp_path) is None
