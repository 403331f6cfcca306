"""What a person sees of a fleet."""

from __future__ import annotations

import io
from dataclasses import replace

import pytest
from rich.console import Console

from ablations.status.model import Run, Status
from ablations.status.view import View, block
from experiments.records.attempt import Attempt
from experiments.records.progress import Progress, RunState
from tests.ablations.status.samples import CRASH

NOW = 1_000.0
TRAINING = Progress(
    stage=RunState.TRAIN, step=123_456, max_steps=300_000, loss=2.3456, tokens_per_second=12_345.6
)
FAR = Attempt(
    cell="c", number=3, worker="w", host="a-node-of-a-long-name-17", devices=(0, 1, 2, 3),
    started_at=1.0,
)  # fmt: skip
NEAR = replace(FAR, number=1, host="b", devices=())
RUNS = (
    Run(
        name="base/seed-1",
        state=RunState.DONE,
        scores={"perplexity": 4.92, "bleu": 25.8},
        seconds=185.0,
    ),
    Run(
        name="C-ff4096/seed-1",
        state=RunState.RUNNING,
        attempt=FAR,
        progress=TRAINING,
        heard_at=NOW - 2,
        seconds_left=43_200.0,
    ),
    Run(
        name="E/seed-1",
        state=RunState.RUNNING,
        attempt=NEAR,
        heard_at=NOW - 185,
        silent_seconds=185.0,
    ),
    Run(name="D-p0.2/seed-1", state=RunState.GIVEN_UP, failures=(CRASH,)),
    Run(name="D-p0.2/seed-2", state=RunState.WAITING),
)
STATUS = Status(title="table3 at scale small", at=NOW, runs=RUNS, seconds_left=86_400.0)
HEADLINE = "table3 at scale small: 1 of 5 done, 2 running, 1 given up, 1 waiting, 24 h 00 min left"


def shown(status: Status, height: int | None, width: int = 80) -> list[str]:
    file = io.StringIO()
    console = Console(file=file, force_terminal=True, width=width, color_system=None)
    console.print(block(status, height))
    return [line.rstrip() for line in file.getvalue().splitlines()]


@pytest.mark.parametrize(("height", "width"), [(40, 80), (None, 200)])
def test_a_line_holds_all_of_a_run(height: int | None, width: int) -> None:
    lines = shown(STATUS, height, width)
    assert max(map(len, lines)) <= width
    assert " ".join(lines).startswith(HEADLINE)
    find = {line.split()[0]: " ".join(line.split()) for line in lines if "seed" in line}
    node = "a-node-…" if height else FAR.host
    assert find["C-ff4096/seed-1"] == (
        f"C-ff4096/seed-1 train 123,456/300K 2.346 12.3K {node} 0-3 3 12 h 00 min"
    )
    assert find["E/seed-1"] == "E/seed-1 silent b 3 min 05 s"
    assert find["base/seed-1"] == "base/seed-1 done 4.92 · 25.8 3 min 05 s"
    at = lines.index("D-p0.2/seed-1, attempt 1: exit code 1: RuntimeError: it broke")
    assert lines[at + 1 :] == ["    in line 3", "    it broke"]


def test_an_evaluation_counts_lines_and_silent_workers_do_not_count() -> None:
    scoring = Progress(stage=RunState.EVALUATE, step=300, max_steps=1_014)
    status = replace(STATUS, runs=(replace(RUNS[1], progress=scoring),))
    assert any(
        "C-ff4096/seed-1 evaluate 300/1,014 " in " ".join(x.split()) for x in shown(status, 9)
    )
    alone = replace(STATUS, runs=(RUNS[2], RUNS[4]), seconds_left=None)
    assert shown(alone, None)[0].endswith("0 of 2 done, 1 running, 1 waiting, nobody works on it")


def test_a_low_terminal_shows_what_runs_and_counts_the_rest() -> None:
    many = tuple(replace(RUNS[0], name=f"row-{n}/seed-1") for n in range(57))
    lines = shown(replace(STATUS, runs=(*many, *RUNS)), 24)
    assert len(lines) < 24
    names = [line.split()[0] for line in lines if "/seed" in line and "attempt" not in line]
    assert names[:3] == ["C-ff4096/seed-1", "E/seed-1", "D-p0.2/seed-1"]
    (rest,) = (line for line in lines if line.startswith("…"))
    assert rest == f"… and {62 - len(names)} done"


def test_a_terminal_is_renewed_once_a_second_with_notes_above_it() -> None:
    file = io.StringIO()
    with View(Console(file=file, force_terminal=True, width=80, height=40)) as view:
        view.update(lambda: STATUS)
        view.update(lambda: pytest.fail("asked again within a second"))
        view.note("base/seed-1: [started]")
    assert "base/seed-1: [started]" in file.getvalue()


def test_a_log_gets_a_line_now_and_then(monkeypatch: pytest.MonkeyPatch) -> None:
    now = [100.0]
    monkeypatch.setattr("ablations.status.view.time.monotonic", lambda: now[0])
    file = io.StringIO()
    with View(Console(file=file, width=60)) as view:
        for now[0] in (100.0, 110.0, 131.0, 140.0):
            view.update(lambda: STATUS)
    running = f"C-ff4096/seed-1 train 123,456/300K 2.346 12.3K {FAR.host} 0-3 3 12 h 00 min"
    assert file.getvalue() == 2 * f"{HEADLINE}; {running}; E/seed-1 silent b 3 min 05 s\n"
