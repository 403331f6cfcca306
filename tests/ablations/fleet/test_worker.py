"""Runs carried out by stand-ins: what is started, what a crash or a signal leaves."""

from __future__ import annotations

import io
import os
import re
import signal
import subprocess
import sys
import threading
from collections.abc import Mapping, Sequence
from pathlib import Path

import pytest
from rich.console import Console

from ablations.fleet.child import PID_FILE
from ablations.fleet.display import Display
from ablations.fleet.machine import Slot, slots
from ablations.fleet.queue import Queue
from ablations.fleet.worker import Execution, Outcome
from ablations.plan import Plan, claim_plan
from ablations.table import Cell
from experiments.experiment import claim
from experiments.progress import read_progress
from experiments.results import load_result
from tests.ablations.samples import (
    finish,
    hangs,
    prepare_fakes,
    small_plan,
    start_fake,
    started,
    when,
)
from transformer.errors import InputError

BASE, NARROW = Cell("base", 1), Cell("narrow", 1)


def execute(
    root: Path,
    behaviour: Mapping[Cell, str],
    *,
    plan: Plan | None = None,
    places: Sequence[Slot] = (Slot(None, 1),),
) -> tuple[Outcome, str]:
    """Run a small table with stand-ins; how it ended and what was shown."""
    prepare_fakes(root, behaviour)
    plan = claim_plan(root, plan or small_plan())
    shown = io.StringIO()
    queue = Queue(f"sqlite:///{root / 'study.sqlite3'}", "pair-tiny")
    execution = Execution(
        plan,
        plan.cells,
        root,
        queue=queue,
        slots=places,
        display=Display(Console(file=shown, width=200)),
        start=start_fake,
    )
    return execution.run(), shown.getvalue()


def test_all_cells_run_the_longest_first(tmp_path: Path) -> None:
    outcome, shown = execute(tmp_path, {}, plan=small_plan(["base", "narrow"], [1, 2]))
    assert outcome == Outcome()
    assert started(tmp_path) == ["base/seed-1", "base/seed-2", "narrow/seed-1", "narrow/seed-2"]
    assert "base/seed-1: started" in shown
    assert re.search(r"narrow/seed-2: finished in \d+ s, perplexity 3.00, BLEU 80.0", shown)
    assert not list(tmp_path.glob(f"*/*/{PID_FILE}"))


def test_a_finished_cell_is_not_run_again(tmp_path: Path) -> None:
    finish(tmp_path, BASE)
    execute(tmp_path, {})
    execute(tmp_path, {})
    assert started(tmp_path) == ["narrow/seed-1"]
    (tmp_path / "study.sqlite3").unlink()
    execute(tmp_path, {})
    assert started(tmp_path) == ["narrow/seed-1"]


def test_a_crash_fails_its_cell_and_no_other(tmp_path: Path) -> None:
    outcome, shown = execute(tmp_path, {BASE: "crash"})
    assert outcome.failed == {BASE: "exit code 1: RuntimeError: it broke"}
    assert "base/seed-1: failed, exit code 1\n    Traceback" in shown
    assert load_result(NARROW.directory(tmp_path)) is not None
    progress = read_progress(BASE.directory(tmp_path))
    assert progress is not None and progress.stage == "failed"
    assert progress.message == "exit code 1: RuntimeError: it broke"


def test_a_failed_cell_is_tried_again_by_the_next_call(tmp_path: Path) -> None:
    execute(tmp_path, {BASE: "kill"})
    outcome, _ = execute(tmp_path, {})
    assert outcome == Outcome()
    assert started(tmp_path) == ["base/seed-1", "narrow/seed-1", "base/seed-1"]


def test_a_killed_run_is_named_as_such(tmp_path: Path) -> None:
    outcome, _ = execute(tmp_path, {BASE: "kill"})
    assert outcome.failed == {BASE: "killed by SIGKILL (out of memory?)"}


def test_a_crash_after_the_result_costs_nothing(tmp_path: Path) -> None:
    outcome, _ = execute(tmp_path, {BASE: "abort"})
    assert outcome == Outcome()


def test_bad_input_stops_the_table(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"^base/seed-1: toy is missing: fetch it$"):
        execute(tmp_path, {BASE: "refuse"})
    assert started(tmp_path) == ["base/seed-1"]


def test_bad_input_stops_the_runs_beside_it(tmp_path: Path) -> None:
    places = (Slot(None, 1), Slot(None, 1))
    with pytest.raises(InputError, match="toy is missing"):
        execute(tmp_path, {BASE: "refuse", NARROW: "hang"}, places=places)


def test_a_directory_of_another_run_is_refused(tmp_path: Path) -> None:
    other = small_plan(seeds=[2]).experiment(Cell("base", 2))
    claim(BASE.directory(tmp_path), other)
    with pytest.raises(InputError, match=r"training\.seed: 2 -> 1"):
        execute(tmp_path, {})


def test_a_signal_stops_the_runs_after_their_checkpoint(tmp_path: Path) -> None:
    before = signal.getsignal(signal.SIGINT)
    thread = when(lambda: hangs(tmp_path, BASE), lambda: os.kill(os.getpid(), signal.SIGINT))
    outcome, shown = execute(tmp_path, {BASE: "hang"})
    thread.join()
    assert outcome == Outcome(signal=signal.SIGINT)
    assert started(tmp_path) == ["base/seed-1"]
    assert "stopping after a checkpoint" in shown
    assert "base/seed-1: stopped after a checkpoint" in shown
    assert signal.getsignal(signal.SIGINT) is before


def test_a_run_that_outlived_its_coordinator_is_ended_first(tmp_path: Path) -> None:
    prepare_fakes(tmp_path, {BASE: "hang"})
    BASE.directory(tmp_path).mkdir(parents=True)
    orphan = start_fake(BASE.directory(tmp_path), device=None, threads=1)
    (BASE.directory(tmp_path) / PID_FILE).write_text(f"{orphan.pid}\n")
    when(lambda: hangs(tmp_path, BASE), lambda: None).join()
    threading.Thread(target=orphan.wait).start()  # init would collect it
    _, shown = execute(tmp_path, {})
    assert orphan.returncode == 75
    assert "base/seed-1: ended the process that an earlier call left behind" in shown
    assert load_result(BASE.directory(tmp_path)) is not None


def test_another_process_with_the_same_number_is_left_alone(tmp_path: Path) -> None:
    stranger = subprocess.Popen([sys.executable, "-S", "-c", "import time; time.sleep(60)"])
    try:
        BASE.directory(tmp_path).mkdir(parents=True)
        (BASE.directory(tmp_path) / PID_FILE).write_text(f"{stranger.pid}\n")
        execute(tmp_path, {})
        assert stranger.poll() is None
    finally:
        stranger.kill()
        stranger.wait()


def test_each_gpu_has_its_run(tmp_path: Path) -> None:
    execute(tmp_path, {}, places=(Slot(3, 1), Slot(5, 1)))
    lines = (tmp_path / "started.txt").read_text().splitlines()
    assert sorted(line.split()[1] for line in lines) == ["3", "5"]


def test_slots_share_out_gpus_and_cores(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("ablations.fleet.machine._cores", lambda: 9)
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "2,3")
    assert slots() == (Slot(2, 4), Slot(3, 4))
    assert slots(3) == (Slot(2, 3), Slot(3, 3), Slot(2, 3))
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "")
    assert slots() == (Slot(None, 2),) * 4
    with pytest.raises(InputError, match="--workers is 0"):
        slots(0)
