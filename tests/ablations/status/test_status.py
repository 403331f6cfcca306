"""States of runs by the files that a fleet leaves, and what a person sees of them."""

from __future__ import annotations

import io
import json
import math
import os
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console

from ablations.runs.lock import WHOLE, lock_runs
from ablations.status import view
from ablations.status.status import DirectoryReader, Status
from ablations.status.view import View, block, show_status
from ablations.tables.plan_file import claim_plan
from ablations.tables.table import Cell
from experiments.records.attempt import Attempt
from experiments.records.processes import own_name
from experiments.records.progress import Progress, RunState
from experiments.records.run import Run
from tests.ablations.samples import finish, result, small_plan
from tests.ablations.search.samples import small_search
from tests.ablations.status.samples import CRASH, begin, training
from transformer.files import write_json


def read(root: Path) -> tuple[Status, dict[str, Run]]:
    status = DirectoryReader(root).read()
    return status, {run.name: run for run in status.runs}


@pytest.fixture
def root(tmp_path: Path) -> Path:
    claim_plan(tmp_path, small_plan(seeds=(1, 2, 3)))
    return tmp_path


def test_every_state_is_read_from_the_files(root: Path) -> None:
    finish(root, Cell("base", 1))
    begin(root, "base/seed-2", training(400, loss=2.5), devices=(3,))
    begin(root, "base/seed-3", training(70), number=3, given_up=True, failures=(CRASH,))
    begin(root, "narrow/seed-1", replace(training(9), stage=RunState.FAILED, message="it broke"))
    begin(root, "narrow/seed-2", failures=(CRASH,), number=2)
    status, runs = read(root)
    states = [run.state for run in status.runs]
    assert states == ["done", "running", "given up", "failed", "running", "waiting"]
    assert (runs["base/seed-1"].scores["perplexity"], runs["base/seed-1"].seconds) == (3.0, 61.5)
    attempt, progress = runs["base/seed-2"].attempt, runs["base/seed-2"].progress
    assert attempt is not None and (attempt.host, attempt.devices) == ("node-a", (3,))
    assert progress is not None and progress.loss == 2.5
    assert runs["base/seed-3"].failures == runs["narrow/seed-2"].failures == (CRASH,)
    assert not status.is_over


def test_a_broken_file_is_named_and_hides_no_other_run(root: Path) -> None:
    finish(root, Cell("base", 1))
    directory = begin(root, "base/seed-2", replace(training(1_500), stage=RunState.DONE))
    directory.rename(root / "base" / "seed-2")
    (root / "base" / "seed-2" / "result.json").write_text('{"bleu": 3')
    broken = begin(root, "base/seed-3", training(9)) / "attempt.json"
    broken.write_text("{")
    with pytest.warns(UserWarning) as warned:
        status, _ = read(root)
    states = [run.state for run in status.runs]
    assert states == ["done", "stopped", "running", "waiting", "waiting", "waiting"]
    told = " ".join(str(each.message) for each in warned)
    assert "base/seed-2/result.json cannot be read" in told and str(broken) in told


def test_a_run_is_known_by_the_last_report_of_its_newest_attempt(root: Path) -> None:
    begin(root, "base/seed-1", training(400, seconds_ago=500.0), number=2)
    begin(root, "base/seed-2", training(4), started_at=1.0)
    begin(root, "base/seed-3", training(4, seconds_ago=185), started_at=1.0)
    here = own_name().rsplit(":", 1)[1]
    begin(root, "narrow/seed-1", training(4), worker=f"node-a:{2**22 + 1}:1:{here}")
    earlier, reports, silent, gone = read(root)[0].runs[:4]
    assert (earlier.state, earlier.report, earlier.silent_seconds) == ("running", None, None)
    assert reports.report is not None and reports.is_live
    assert silent.silent_seconds == pytest.approx(185, abs=2)
    assert gone.state == "stopped"


def test_the_time_left_follows_from_runs_done_and_in_progress(root: Path) -> None:
    assert read(root)[0].seconds_left is None  # nobody works
    finish(root, Cell("base", 1))  # copied from a faster machine, where it took 61.5 s
    begin(root, "base/seed-2", training(500, seconds_left=82.0))  # so 123 s in all
    begin(root, "base/seed-3")
    status, _ = read(root)
    assert status.left == {"base/seed-2": 82.0, "base/seed-3": pytest.approx(123.0)}
    # Two at a time: three narrow rows wait; the first to be free takes two of them.
    assert status.seconds_left is not None
    assert 123.0 < status.seconds_left < 123.0 + 2 * 123.0


def test_a_finished_run_is_read_only_once(root: Path) -> None:
    reader = DirectoryReader(root)
    assert reader.read().counts == {"waiting": 6}
    directory = begin(root, "base/seed-1", training(4))
    assert reader.read().counts == {"running": 1, "waiting": 5}
    directory.rename(root / "base" / "seed-1")
    finish(root, Cell("base", 1))
    assert reader.read().counts == {"done": 1, "waiting": 5}
    (root / "base" / "seed-1" / "result.json").unlink()
    assert reader.read().counts == {"done": 1, "waiting": 5}


def test_the_time_of_a_first_attempt_counts_from_its_start(root: Path) -> None:
    directory = begin(root, "base/seed-1", started_at=1_795_255_100.0)
    directory.rename(root / "base" / "seed-1")
    finish(root, Cell("base", 1))  # at 2026-11-21T10:00:00Z, after 61.5 s of training
    assert read(root)[1]["base/seed-1"].seconds == 1_795_255_200.0 - 1_795_255_100.0


def test_trials_of_a_search(tmp_path: Path) -> None:
    small_search(tmp_path, trials=3)
    begin(tmp_path, "trial-0001", training(400, seconds_left=110.0))
    (tmp_path / "trial-0000").mkdir()
    write_json(tmp_path / "trial-0000" / "pruned.json", {"step": 668, "perplexity": 9.5})
    status, runs = read(tmp_path)
    assert [run.state for run in status.runs] == ["pruned", "running", "waiting"]
    assert status.title == "search base_lr at scale tiny"
    assert runs["trial-0000"].report == Progress(stage=RunState.DONE, step=668)
    # The third takes as long as the second does in all, but is pruned as the first was.
    assert status.seconds_left == pytest.approx(110.0 + 110.0 * 1_500 / 1_100 * 668 / 1_500)


def test_a_driver_that_has_begun_is_starting_its_confirmation_too(tmp_path: Path) -> None:
    small_search(tmp_path, trials=3)
    claim_plan(tmp_path / "confirm", small_plan())
    lock = tmp_path / ".driver.lock"

    def say() -> set[str]:
        return {view.describe_time(read(root)[0]) for root in (tmp_path, tmp_path / "confirm")}

    assert say() == {"none in progress"}
    with lock_runs(tmp_path, WHOLE):
        assert say() == {"the driver is starting"}
        silent = begin(tmp_path, "trial-0000", training(4, 185.0), started_at=1.0)
        assert say() == {"time left not known yet", "the driver is starting"}
        silent.rename(tmp_path / "removed")
    stopped = replace(training(4), stage=RunState.STOPPED)
    stopped_run = begin(tmp_path, "trial-0001", stopped)
    with lock_runs(tmp_path, WHOLE):  # as on a cluster without a node
        assert say() == {"3 wait for a place to run", "the driver is starting"}
        assert read(tmp_path)[0].counts == {"waiting": 3}
    lock.write_text(own_name().replace(f":{os.getpid()}:", f":{2**22 + 1}:"))
    assert read(tmp_path)[0].counts == {"stopped": 1, "waiting": 2}
    stopped_run.rename(tmp_path / "removed-too")
    assert say() == {"none in progress"}
    lock.write_text("process 1 on node-b since today\nnode-b:1:2:3")
    assert say() == {"the driver is starting"}
    os.utime(lock, (0, 0))
    assert say() == {"none in progress"}


@pytest.mark.parametrize("as_json", [True, False])
def test_watching_ends_when_all_is_done(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    as_json: bool,
) -> None:
    claim_plan(tmp_path, small_plan())
    finish(tmp_path, Cell("base", 1), bleu=math.inf)
    begin(tmp_path, "narrow/seed-1", training(400, loss=2.5))
    monkeypatch.setattr(view.time, "sleep", lambda _: finish(tmp_path, Cell("narrow", 1)))
    assert show_status(tmp_path, watch=True, as_json=as_json) == 0
    lines = capsys.readouterr().out.splitlines()
    if not as_json:
        assert lines[0].startswith("pair at scale tiny: 1 of 2 done, 1 running, ")
        assert lines[-4] == "pair at scale tiny: 2 of 2 done, all runs have ended"
        return
    first, last = map(json.loads, lines)
    assert [run["state"] for run in last["runs"]] == ["done", "done"]
    done, running = first["runs"]
    assert (done["scores"], done["progress"]) == ({"perplexity": 3.0, "bleu": "Infinity"}, None)
    assert (running["attempt"]["host"], running["progress"]["step"]) == ("node-a", 400)


TRAINING = Progress(
    stage=RunState.TRAIN,
    step=123_456,
    max_steps=300_000,
    loss=2.3456,
    tokens_per_second=12_345.6,
    updated_at=2.0,
)
FAR = Attempt(cell="c", number=3, worker="w", host="a", devices=(0, "GPU-5f3ea7d2"), started_at=1.0)
NEAR = replace(FAR, number=1, host="b", devices=())
DONE = replace(result(Cell("base", 1), 4.92, 25.8), train_seconds=185.0)


def run(name: str, state: RunState, **facts: Any) -> Run:
    return Run(name=name, directory=Path(name), state=state, **facts)


RUNS = (
    run("base/seed-1", RunState.DONE, result=DONE),
    run("C-ff4096/seed-1", RunState.RUNNING, attempt=FAR, progress=TRAINING),
    run("E/seed-1", RunState.RUNNING, attempt=NEAR, silent_seconds=185.0),
    run("D-p0.2/seed-1", RunState.GIVEN_UP, attempt=replace(NEAR, host="c", failures=(CRASH,))),
    run("D-p0.2/seed-2", RunState.WAITING),
)
STATUS = Status(
    title="table3 at scale small",
    runs=RUNS,
    seconds_left=86_400.0,
    left={"C-ff4096/seed-1": 43_200.0},
)
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
        "run state step/PPL·BLEU loss tok/s on try left/took",
        "C-ff4096/seed-1 train 123,456/300K 2.346 12.3K a:0,GPU-5f3e 3 12 h 00 min",
        "E/seed-1 silent 3 min b",
        "D-p0.2/seed-1 given up c",
        "D-p0.2/seed-2 waiting",
        "base/seed-1 done 4.92 · 25.8 3 min 05 s",
        "D-p0.2/seed-1, attempt 1: exit code 1: RuntimeError: it broke",
        "in line 3",
        "it broke",
    ]


def test_a_failure_is_cut_off_while_it_is_watched_and_whole_at_the_end() -> None:
    reason = "exit code 1: RuntimeError: " + "a word of many, " * 11 + "the last one"
    failed = replace(CRASH, reason=reason)
    given_up = run("b/seed-1", RunState.GIVEN_UP, attempt=replace(NEAR, failures=(failed,)))
    status = replace(STATUS, runs=(*RUNS[:2], given_up))
    assert "the last one" not in " ".join(shown(status, 24, width=80))
    lines = shown(status, None, width=80)
    assert reason in " ".join(lines) and max(map(len, lines)) <= 80
    assert not any("…" in line for line in lines)


def test_the_head_names_the_scores_once_a_run_is_done() -> None:
    assert view.heads(STATUS)[2] == "step/PPL·BLEU"
    assert view.heads(replace(STATUS, runs=RUNS[1:]))[2] == "step"


def test_an_evaluation_counts_lines_and_silent_workers_do_not_count() -> None:
    scoring = Progress(stage=RunState.EVALUATE, step=300, max_steps=1_014, updated_at=2.0)
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
