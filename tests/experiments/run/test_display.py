"""The display of a run in progress, and the file that other processes read."""

from __future__ import annotations

from contextlib import closing
from io import StringIO
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console

import experiments.display
from experiments.display import Display
from experiments.records.progress import Progress, RunState, read_progress


def _console(terminal: bool) -> tuple[Console, StringIO]:
    out = StringIO()
    return Console(file=out, force_terminal=terminal, width=100, color_system=None), out


def _progress(step: int) -> Progress:
    figures: dict[str, Any] = {"tokens_per_second": 12_345.6, "seconds_left": 61.4}
    return Progress(stage=RunState.TRAIN, step=step, max_steps=1_000, loss=2.34567, **figures)


@pytest.mark.parametrize(("seconds", "shown"), [(30.0, [1, 1_000]), (0.0, [1, 2, 3, 1_000])])
def test_without_a_terminal_a_line_is_printed_now_and_then_and_at_the_end(
    seconds: float, shown: list[int], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(experiments.display, "_LINE_SECONDS", seconds)
    console, out = _console(terminal=False)
    with closing(Display(tmp_path, console)) as display:
        display.start(RunState.TRAIN)
        for step in (1, 2, 3, 1_000):
            display.update(_progress(step))
    figures = "loss 2.346  12,346 tokens/s  1 min 01 s left"
    assert out.getvalue().splitlines() == [f"train {step}/1000  {figures}" for step in shown]


def test_a_terminal_shows_a_bar_with_messages_above_it(tmp_path: Path):
    console, out = _console(terminal=True)
    with closing(Display(tmp_path, console)) as display:
        display.start(RunState.PREPARE)  # which has bars of its own
        assert out.getvalue() == ""
        display.start(RunState.TRAIN)
        display.update(_progress(250))
        display.say("resuming at step 250 of 1000")
    for part in ("train", "250/1000", "loss 2.346", "12,346 tokens/s", "1 min 01 s left"):
        assert part in out.getvalue()
    assert "resuming at step 250 of 1000\n" in out.getvalue()


def test_progress_json_follows_the_stages(tmp_path: Path):
    display = Display(tmp_path, _console(terminal=False)[0])
    found: list[tuple[str, int]] = []
    for stage, step in (("prepare", 0), ("train", 0), ("train", 1), ("train", 2), ("train", 1_000)):
        if step == 0:
            display.start(RunState(stage))
        else:
            display.update(_progress(step))
        written = read_progress(tmp_path)
        assert written is not None and written.updated_at > 1_700_000_000
        found.append((written.stage, written.step))
    # The third update is within the same second; the end is always written.
    assert found == [("prepare", 0), ("train", 0), ("train", 1), ("train", 1), ("train", 1_000)]
