"""What a person sees while a table runs."""

from __future__ import annotations

import io

import pytest
from rich.console import Console

from ablations.fleet.display import Display, Running, Snapshot
from ablations.table import Cell
from experiments.progress import Progress

SNAPSHOT = Snapshot(
    done=3,
    failed=1,
    total=20,
    running=(
        Running(
            Cell("big", 1),
            Progress(
                stage="train", step=1_200, max_steps=4_500, loss=2.3456, tokens_per_second=12_345.6
            ),
            75.0,
        ),
        Running(Cell("C-N8", 1), None, None),
        Running(Cell("E", 1), Progress(stage="evaluate"), 4.0),
    ),
    seconds_left=1_234.0,
)


def test_a_terminal_shows_a_line_for_each_run() -> None:
    shown = io.StringIO()
    console = Console(file=shown, force_terminal=True, width=100, color_system=None)
    with Display(console) as display:
        display.update(lambda: SNAPSHOT)
        display.update(lambda: pytest.fail("asked again within a second"))
    text = shown.getvalue()
    assert "big/seed-1      train  1,200/4,500  2.346    12,346  1 min 15 s" in text
    assert "C-N8/seed-1  starting" in text
    assert "E/seed-1     evaluate" in text
    assert "3 of 20 runs done, 1 failed, 20 min 34 s left" in text


def test_a_log_gets_a_line_now_and_then(monkeypatch: pytest.MonkeyPatch) -> None:
    now = [100.0]
    monkeypatch.setattr("ablations.fleet.display.time.monotonic", lambda: now[0])
    shown = io.StringIO()
    with Display(Console(file=shown, width=60)) as display:
        for now[0] in (100.0, 110.0, 131.0, 140.0):
            display.update(lambda: SNAPSHOT)
    assert shown.getvalue() == (
        "3 of 20 runs done, 1 failed, 20 min 34 s left; "
        "big/seed-1 step 1,200/4,500, loss 2.346, 12,346 tok/s; C-N8/seed-1 starting; "
        "E/seed-1 evaluate\n"
    )
