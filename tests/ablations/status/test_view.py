"""What a person sees of a fleet."""

from __future__ import annotations

import io
from dataclasses import replace

import pytest
from rich.console import Console

from ablations.status.status import Run, Status
from ablations.status.view import View, block
from experiments.records.attempt import Attempt
from experiments.records.progress import Progress, RunState
from tests.ablations.status.samples import CRASH

TRAINING = Progress(
    stage=RunState.TRAIN, step=123_456, max_steps=300_000, loss=2.3456, tokens_per_second=12_345.6
)
FAR = Attempt(cell="c", number=3, worker="w", host="a", devices=(0, "GPU-5f3ea7d2"), started_at=1.0)
NEAR = replace(FAR, number=1, host="b", devices=())
SCORES = {"perplexity": 4.92, "bleu": 25.8}
RUNS = (
    Run(name="base/seed-1", state=RunState.DONE, scores=SCORES, seconds=185.0),
    Run(
        name="C-ff4096/seed-1",
        state=RunState.RUNNING,
        attempt=FAR,
        progress=TRAINING,
        seconds_left=43_200.0,
    ),
    Run(name="E/seed-1", state=RunState.RUNNING, attempt=NEAR, silent_seconds=185.0),
    Run(
        name="D-p0.2/seed-1",
        state=RunState.GIVEN_UP,
        attempt=replace(NEAR, host="c", failures=(CRASH,)),
    ),
    Run(name="D-p0.2/seed-2", state=RunState.WAITING),
)
STATUS = Status(title="table3 at scale small", runs=RUNS, seconds_left=86_400.0)
HEADLINE = "table3 at scale small: 1 of 5 done, 2 running, 1 given up, 1 waiting, 24 h 00 min left"


def shown(status: Status, height: int | None, width: int = 90) -> list[str]:
    file = io.StringIO()
    console = Console(file=file, force_terminal=True, width=width, color_system=None)
    console.print(block(status, height))
    return [" ".join(line.split()) for line in file.getvalue().splitlines()]


@pytest.mark.parametrize("height", [40, None])
def test_a_line_holds_all_of_a_run(height: int | None) -> None:
    assert shown(STATUS, height) == [
        HEADLINE,
        "run state step/scores loss tok/s on try left/took",
        "C-ff4096/seed-1 train 123,456/300K 2.346 12.3K a:0,GPU-5f3e 3 12 h 00 min",
        "E/seed-1 silent 3 min 05 s b",
        "D-p0.2/seed-1 given up c",
        "D-p0.2/seed-2 waiting",
        "base/seed-1 done 4.92 · 25.8 3 min 05 s",
        "D-p0.2/seed-1, attempt 1: exit code 1: RuntimeError: it broke",
        "in line 3",
        "it broke",
    ]


def test_an_evaluation_counts_lines_and_silent_workers_do_not_count() -> None:
    scoring = Progress(stage=RunState.EVALUATE, step=300, max_steps=1_014)
    status = replace(STATUS, runs=(replace(RUNS[1], progress=scoring),))
    assert "C-ff4096/seed-1 evaluate 300/1,014 " in shown(status, 9)[2]
    alone = replace(STATUS, runs=(RUNS[2], RUNS[4]), seconds_left=None)
    assert shown(alone, None)[0].endswith("0 of 2 done, 1 running, 1 waiting, none in progress")


def test_a_low_terminal_shows_what_runs_and_counts_the_rest() -> None:
    many = tuple(replace(RUNS[0], name=f"row-{n}/seed-1") for n in range(57))
    lines = shown(replace(STATUS, runs=(*many, *RUNS)), 24)
    assert len(lines) < 24
    names = [line.split()[0] for line in lines if "/seed" in line and "attempt" not in line]
    assert names[:3] == ["C-ff4096/seed-1", "E/seed-1", "D-p0.2/seed-1"]
    assert f"… and {62 - len(names)} more" in lines


@pytest.mark.parametrize(
    ("is_terminal", "took", "now_and_then", "looks"),
    [
        (True, 0.0, (100.0, 100.5, 110.0, 131.0), [100.0, 110.0, 131.0]),
        (False, 0.0, (100.0, 100.5, 110.0, 131.0), [100.0, 131.0]),
        (False, 3.0, (100.0, 131.0, 159.0, 161.0), [100.0, 161.0]),  # twenty times as long apart
    ],
)
def test_a_terminal_is_renewed_each_second_and_a_log_each_half_minute(
    monkeypatch: pytest.MonkeyPatch,
    is_terminal: bool,
    took: float,
    now_and_then: tuple[float, ...],
    looks: list[float],
) -> None:
    now, found, file = [100.0], list[float](), io.StringIO()
    monkeypatch.setattr("ablations.status.view.time.monotonic", lambda: now[0])

    def look() -> Status:
        found.append(now[0])
        now[0] += took
        return STATUS

    with View(Console(file=file, force_terminal=is_terminal, width=90, height=40)) as view:
        for now[0] in now_and_then:
            view.update(look)
        view.note("base/seed-1: [started]")
    assert found == looks
    text = file.getvalue()
    if is_terminal:
        assert "base/seed-1: [started]" in text
    else:
        assert text == 2 * f"{HEADLINE}\n" + "base/seed-1: [started]\n"
