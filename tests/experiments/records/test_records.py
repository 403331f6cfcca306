"""Small files of a run's directory: read as they were written, and refused if they are damaged."""

from __future__ import annotations

import dataclasses
import json
import os
import subprocess
import time
from pathlib import Path

import pytest

from experiments.callbacks.metrics import Clock, LogMetrics
from experiments.records import provenance
from experiments.records.attempt import Attempt, Failure, read_attempt, write_attempt
from experiments.records.outputs import valid_perplexities
from experiments.records.progress import (
    Progress,
    RunState,
    final_state,
    read_progress,
    record_end,
    write_progress,
)
from experiments.records.result import load_result, save_result
from transformer.errors import InputError
from transformer.files import write_json

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
PROGRESS = Progress(stage=RunState.TRAIN, step=3, max_steps=7, loss=2.5, seconds_left=2.0)


def test_an_attempt_is_read_as_it_was_written(tmp_path: Path):
    assert read_attempt(tmp_path / "taken" / "over") is None
    write_attempt(tmp_path, ATTEMPT)
    assert read_attempt(tmp_path) == ATTEMPT
    (tmp_path / "attempt.json").write_text("{}")
    with pytest.warns(UserWarning, match=r"left out: .*attempt\.json"):
        assert read_attempt(tmp_path) is None


def test_a_result_comes_back_as_it_was(finished: Path, tmp_path: Path):
    assert load_result(tmp_path) is None
    result = load_result(finished)
    assert result is not None
    for changed in (result, dataclasses.replace(result, test_bleu=None, perplexity=float("inf"))):
        save_result(tmp_path, changed)
        assert load_result(tmp_path) == changed
    written = json.loads((finished / "result.json").read_text())
    write_json(tmp_path / "result.json", written | {"a measure of another version": 1.0})
    assert load_result(tmp_path) == result
    write_json(tmp_path / "result.json", written | {"steps": "many"})
    with pytest.raises(InputError, match=r"result\.json does not fit this version.*steps"):
        load_result(tmp_path)


def test_progress_that_cannot_be_read_is_none(tmp_path: Path):
    assert read_progress(tmp_path) is None
    for content in ("", "{", "[]", '{"stage": "unheard of"}'):
        (tmp_path / "progress.json").write_text(content)
        assert read_progress(tmp_path) is None


def test_a_message_is_stripped_of_control_characters():
    written = "\x1b[31;1mred\x1b[0m and\x07 \x1b]0;title\x07more\ta tab, \r\nüber 語 \u202e."
    shown = "red and more a tab,   über 語 ."
    assert Progress(stage=RunState.FAILED, message=written).message == shown
    failure = Failure(attempt=1, reason=written, lines=(written,), at=0.0)
    assert (failure.reason, failure.lines) == (shown, (shown,))


def test_without_a_record_the_exit_code_decides_how_a_process_ended(tmp_path: Path):
    write_progress(tmp_path, PROGRESS)
    states = {0: "done", 2: "refused", 75: "stopped", 1: "failed", -9: "failed"}
    assert {code: final_state(tmp_path, code, time.time()) for code in states} == states


def test_its_first_record_stands_and_keeps_how_far_the_run_was(tmp_path: Path):
    """One rank runs out of memory, and then another fails because the first is gone."""
    write_progress(tmp_path, PROGRESS)
    started_at = time.time()
    record_end(tmp_path, RunState.DIVERGED, "nan", step=5, started_at=started_at)
    record_end(tmp_path, RunState.FAILED, "connection closed", started_at=started_at)
    assert final_state(tmp_path, 17, started_at) == RunState.DIVERGED
    assert final_state(tmp_path, 17, time.time() + 1) == "failed"  # a later process
    found = read_progress(tmp_path)
    assert found is not None
    assert (found.step, found.max_steps, found.message, found.seconds_left) == (5, 7, "nan", None)
    record_end(tmp_path, RunState.STOPPED, "at the next attempt", started_at=time.time())
    assert final_state(tmp_path, 17, started_at) == "stopped"
    record_end(tmp_path / "gone", RunState.STOPPED, "why", started_at=0.0)
    assert not (tmp_path / "gone").exists()


_HEADER = b"step,loss,train_perplexity,learning_rate,gradient_norm,valid_loss,valid_perplexity\r\n"
_ROWS = [b"10,4.1,60,0.1,1.5,,\r\n", b"20,3.9,5e+1,0.2,1.4,,\r\n", b"20,,,,,3.8,inf\r\n"]
_LATER = b"30,3.7,4,0.3,1,,\r\n"


@pytest.mark.parametrize(
    ("before", "step", "kept"),
    [
        (None, 0, []),
        (b"", 0, []),
        (_HEADER[:20], 30, []),
        (_HEADER + b"".join(_ROWS) + _LATER, 0, []),
        (_HEADER + b"".join(_ROWS) + _LATER, 25, _ROWS),
        (_HEADER + b"".join(_ROWS) + _LATER, 30, [*_ROWS, _LATER]),
        (_HEADER + b"".join(_ROWS)[:-5], 30, _ROWS[:2]),  # the disk was full
        (_HEADER + b"".join(_ROWS) + b"\0" * 18, 30, _ROWS),  # a power cut
        (_HEADER + _ROWS[0] + _ROWS[1].replace(b"3.9", b"\xff.9") + _ROWS[2], 30, _ROWS[::2]),
        (_HEADER + _ROWS[0] + b'"\n10,4\n20,\n', 30, _ROWS[:1]),
    ],
)
def test_metrics_that_are_damaged_or_of_later_steps_are_dropped(
    before: bytes | None, step: int, kept: list[bytes], tmp_path: Path
):
    path = tmp_path / "metrics.csv"
    if before is not None:
        path.write_bytes(before)
    LogMetrics(tmp_path, Clock(), every=10, resumed_step=step)
    assert path.read_bytes() == _HEADER + b"".join(kept)
    assert valid_perplexities(tmp_path) == ({20: float("inf")} if _ROWS[2] in kept else {})


def test_the_commit_is_found_without_writing_to_the_repository(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    def git(*arguments: str) -> str:
        identity = ["-c", "user.name=me", "-c", "user.email=me@example.org"]
        return subprocess.run(
            ["git", *identity, *arguments], cwd=tmp_path, check=True, capture_output=True, text=True
        ).stdout.strip()

    source = tmp_path / "source.py"
    source.write_text("one = 1\n")
    git("init")
    git("add", "source.py")
    git("commit", "--message=first")
    monkeypatch.setattr(provenance, "__file__", str(source))
    find = provenance.commit.__wrapped__
    os.utime(source, (0, 0))  # what git would note in its index, under a lock
    index = (tmp_path / ".git" / "index").read_bytes()
    assert find() == git("rev-parse", "HEAD")[:12]
    source.write_text("one = 2\n")
    assert find() == git("rev-parse", "HEAD")[:12] + "-dirty"
    assert (tmp_path / ".git" / "index").read_bytes() == index
