"""The display of a run in progress, and the file that other processes read."""

from __future__ import annotations

import io
import sys
from contextlib import closing
from pathlib import Path

import pytest

import transformer.progress
from experiments.display import Display
from experiments.records.progress import Progress, RunState, read_progress


def _progress(step: int, seconds_left: float | None = None) -> Progress:
    return Progress(
        stage=RunState.TRAIN,
        step=step,
        max_steps=1_000,
        loss=2.34567,
        tokens_per_second=12_345.6,
        seconds_left=seconds_left,
    )


def test_without_a_terminal_a_line_has_all_figures(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
):
    monkeypatch.setattr(transformer.progress, "_LINE_SECONDS", 0.0)
    with closing(Display(tmp_path)) as display:
        display.start(RunState.PREPARE)  # which shows its own
        display.start(RunState.TRAIN, 1_000, 250)
        display.update(_progress(400))
        display.say("resuming")
    figures = "400 of 1,000  loss 2.346  12,346 tokens/s"
    assert capsys.readouterr().err.splitlines() == [f"train: 40%  {figures}", "resuming"]


def test_a_terminal_shows_a_bar_with_messages_above_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setenv("FORCE_COLOR", "1")  # as a terminal would have it
    monkeypatch.setenv("COLUMNS", "120")
    monkeypatch.setattr(sys, "stderr", out := io.StringIO())
    with closing(Display(tmp_path)) as display:
        display.start(RunState.PREPARE)
        assert out.getvalue() == ""
        display.start(RunState.TRAIN, 1_000)
        display.update(_progress(250))
        display.say("resuming at step 250 of 1000")
    for part in ("train", "25%", "250 of 1,000", "loss 2.346", "12,346 tokens/s"):
        assert part in out.getvalue()
    assert "resuming at step 250 of 1000" in out.getvalue()


def test_progress_json_follows_the_stages(tmp_path: Path):
    display = Display(tmp_path)
    found: list[tuple[str, int]] = []
    for stage, step in (("prepare", 0), ("train", 0), ("train", 1), ("train", 2), ("train", 1_000)):
        if step == 0:
            display.start(RunState(stage), 1_000 * (stage == "train"))
        else:
            display.update(_progress(step, seconds_left=1e-6))
        written = read_progress(tmp_path)
        assert written is not None and written.updated_at > 1_700_000_000
        found.append((written.stage, written.step))
    # The third update is within the same second; the end is always written.
    assert found == [("prepare", 0), ("train", 0), ("train", 1), ("train", 1), ("train", 1_000)]
    assert written.seconds_left == 0  # a limit of time ends it no later than its last step
    display.close()
