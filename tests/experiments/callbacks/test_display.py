"""What a person sees of a run under way, and what other processes read of it."""

from __future__ import annotations

import json
from io import StringIO
from pathlib import Path

import pytest
from rich.console import Console

import experiments.callbacks.display
from experiments.callbacks.display import Display
from experiments.evaluate.scoring import show_lines
from experiments.run.progress import Progress, RunState, read_progress, write_progress


def _console(terminal: bool) -> tuple[Console, StringIO]:
    out = StringIO()
    return Console(file=out, force_terminal=terminal, width=100, color_system=None), out


def _progress(step: int, stage: RunState = RunState.TRAIN) -> Progress:
    return Progress(
        stage=stage,
        step=step,
        max_steps=1_000,
        loss=2.34567,
        tokens_per_second=12_345.6,
        seconds_left=61.4,
    )


def test_off_a_terminal_each_stage_begins_and_ends_with_a_line():
    console, out = _console(terminal=False)
    display = Display(None, console)
    display.start(RunState.TRAIN)
    for step in (1, 2, 3, 1_000):
        display.update(_progress(step))
    display.stop()
    assert out.getvalue().splitlines() == [
        "train 1/1000  loss 2.346  12,346 tokens/s  1:01 left",
        "train 1000/1000  loss 2.346  12,346 tokens/s  1:01 left",
    ]


def test_off_a_terminal_a_line_comes_now_and_then(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(experiments.callbacks.display, "_LINE_SECONDS", 0.0)
    console, out = _console(terminal=False)
    display = Display(None, console)
    display.start(RunState.TRAIN)
    for step in (1, 2, 3):
        display.update(_progress(step))
    assert [line.split()[1] for line in out.getvalue().splitlines()] == [
        "1/1000",
        "2/1000",
        "3/1000",
    ]


def test_preparing_is_left_to_its_own_bars():
    console, out = _console(terminal=True)
    display = Display(None, console)
    display.start(RunState.PREPARE)
    display.stop()
    assert out.getvalue() == ""
    display.start(RunState.TRAIN)
    display.stop()
    assert "train" in out.getvalue()


def test_what_is_not_known_is_not_shown():
    console, out = _console(terminal=False)
    Display(None, console).update(Progress(stage=RunState.TRAIN, step=1, max_steps=5))
    assert out.getvalue().strip() == "train 1/5"


def test_on_a_terminal_a_bar_says_all_of_it_and_a_message_stands_above():
    console, out = _console(terminal=True)
    display = Display(None, console)
    display.start(RunState.TRAIN)
    display.update(_progress(250))
    display.say("resuming at step 250 of 1000")
    display.stop()
    shown = out.getvalue()
    for part in ("train", "250/1000", "loss 2.346", "12,346 tokens/s", "1:01 left"):
        assert part in shown
    assert "resuming at step 250 of 1000\n" in shown


def test_a_message_is_one_line_however_long():
    console, out = _console(terminal=False)
    Display(None, console).say("word " * 60)
    assert out.getvalue().count("\n") == 1


def test_the_file_follows_the_stages(tmp_path: Path):
    display = Display(tmp_path, _console(terminal=False)[0])
    display.start(RunState.PREPARE)
    assert json.loads((tmp_path / "progress.json").read_text())["stage"] == "prepare"
    display.start(RunState.TRAIN)
    display.update(_progress(1))
    written = json.loads((tmp_path / "progress.json").read_text())
    assert written.pop("updated_at") > 1_700_000_000
    assert written == {
        "stage": "train",
        "step": 1,
        "max_steps": 1_000,
        "loss": 2.34567,
        "tokens_per_second": 12_345.6,
        "seconds_left": 61.4,
        "message": "",
    }


def test_the_file_is_written_no_more_than_once_a_second_but_at_the_end(tmp_path: Path):
    display = Display(tmp_path, _console(terminal=False)[0])
    display.start(RunState.TRAIN)
    for step in (1, 2, 3):
        display.update(_progress(step))
    first = read_progress(tmp_path)
    display.update(_progress(1_000))
    last = read_progress(tmp_path)
    assert first is not None and first.step == 1
    assert last is not None and last.step == 1_000


def test_progress_comes_back_as_it_was_written(tmp_path: Path):
    write_progress(tmp_path, _progress(7))
    found = read_progress(tmp_path)
    assert found is not None
    assert (found.stage, found.step, found.loss) == ("train", 7, 2.34567)


@pytest.mark.parametrize("content", [None, "", "{", "[]", '{"stage": "unheard of"}'])
def test_progress_that_cannot_be_read_is_none(content: str | None, tmp_path: Path):
    if content is not None:
        (tmp_path / "progress.json").write_text(content)
    assert read_progress(tmp_path) is None


def test_of_the_first_lines_of_a_text_no_time_left_is_told(tmp_path: Path):
    display = Display(tmp_path, _console(terminal=False)[0])
    update = show_lines(display, 101)
    told: list[bool] = []
    for done in (1, 3, 101):
        display.start(RunState.EVALUATE)  # so that the next is written at once
        update(done)
        written = json.loads((tmp_path / "progress.json").read_text())
        told.append(written["seconds_left"] is not None)
    assert told == [False, True, True]
