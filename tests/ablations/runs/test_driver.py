"""Runs carried out by stand-ins: what is started, what a crash or a signal leaves."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Mapping, Sequence
from pathlib import Path

import pytest

from ablations.files import STUDY_FILE
from ablations.runs.attempts import clear_failures, is_given_up, locate, read_ended
from ablations.runs.driver import Driver
from ablations.runs.lock import name_of, own_name
from ablations.runs.options import Options
from ablations.runs.process import Job, Place
from ablations.runs.supervise import PROCESS_FILE, LocalExecutor
from ablations.tables.cells import TableCells
from ablations.tables.plan import Plan, claim_plan
from ablations.tables.table import Cell
from experiments.records.attempt import read_attempt
from experiments.records.data import recorded_data
from experiments.records.experiment import DATA_FILE
from experiments.records.ownership import claim
from experiments.records.progress import read_progress
from experiments.records.result import load_result
from tests.ablations.samples import (
    finish,
    hangs,
    prepare_stand_ins,
    small_plan,
    start_stand_in,
    started,
    when,
)
from transformer.config import to_dict
from transformer.data.prepared import make_manifest
from transformer.errors import InputError
from transformer.files import write_json

BASE, NARROW = Cell("base", 1), Cell("narrow", 1)


def work_on(
    root: Path,
    behaviour: Mapping[Cell, str],
    *,
    plan: Plan | None = None,
    places: Sequence[Place] = (Place(0),),
    retries: int = 0,
) -> tuple[signal.Signals | None, str]:
    """Carry out what is left with stand-ins; the signal that ended it, and the notes."""
    prepare_stand_ins(root, behaviour)
    claim_plan(root, plan or small_plan())
    cells, told = TableCells(root), list[str]()
    driver = Driver(
        cells,
        LocalExecutor(places, start_stand_in),
        [x for x in cells.names if not read_ended(root / x) and not is_given_up(root / x)],
        Options(retries=retries),
        note=told.append,
        show=lambda: None,
    )
    return driver.run(), "\n".join(told)


def directory(root: Path, cell: Cell) -> Path:
    return locate(cell.directory(root))


def test_all_cells_run_the_longest_first(tmp_path: Path) -> None:
    outcome, told = work_on(tmp_path, {}, plan=small_plan(["base", "narrow"], [1, 2]))
    assert outcome is None
    assert started(tmp_path) == ["base/seed-1", "base/seed-2", "narrow/seed-1", "narrow/seed-2"]
    assert "base/seed-1: started\n" in told
    assert "narrow/seed-2: finished in 1 min 02 s, perplexity" in told  # as status says
    assert not list(tmp_path.glob("*/*.attempt-*"))


def test_a_finished_cell_is_not_run_again(tmp_path: Path) -> None:
    finish(tmp_path, BASE)
    work_on(tmp_path, {})
    work_on(tmp_path, {})
    assert started(tmp_path) == ["narrow/seed-1"]
    (tmp_path / STUDY_FILE).unlink()
    work_on(tmp_path, {})
    assert started(tmp_path) == ["narrow/seed-1"]


def test_an_exception_is_tried_again_and_then_given_up(tmp_path: Path) -> None:
    outcome, told = work_on(tmp_path, {BASE: "crash"}, retries=1)
    assert outcome is None
    assert started(tmp_path).count("base/seed-1") == 2
    assert "exit code 1: RuntimeError: it broke; it is tried again\n    Traceback" in told
    assert "base/seed-1: started (attempt 2)" in told
    assert load_result(NARROW.directory(tmp_path)) is not None
    progress, attempt = (
        read_progress(directory(tmp_path, BASE)),
        read_attempt(directory(tmp_path, BASE)),
    )
    assert progress is not None and attempt is not None
    assert (progress.stage, progress.message) == ("failed", "exit code 1: RuntimeError: it broke")
    assert [failure.attempt for failure in attempt.failures] == [1, 2]
    assert attempt.failures[0].lines[-1] == "RuntimeError: it broke"
    assert attempt.given_up


def test_a_run_that_diverged_is_not_tried_again(tmp_path: Path) -> None:
    _, told = work_on(tmp_path, {BASE: "diverge"}, retries=2)
    assert started(tmp_path) == ["base/seed-1", "narrow/seed-1"]
    assert "base/seed-1: failed, training diverged: nan; given up" in told


def test_a_run_that_was_given_up_is_tried_again_once_its_failures_are_cleared(
    tmp_path: Path,
) -> None:
    work_on(tmp_path, {BASE: "crash"})
    work_on(tmp_path, {})
    assert started(tmp_path) == ["base/seed-1", "narrow/seed-1"]
    clear_failures(BASE.directory(tmp_path))
    outcome, _ = work_on(tmp_path, {})
    assert outcome is None
    assert started(tmp_path) == ["base/seed-1", "narrow/seed-1", "base/seed-1"]


def test_a_run_that_is_killed_without_progress_is_given_up(tmp_path: Path) -> None:
    _, told = work_on(tmp_path, {BASE: "kill"}, retries=3)
    assert "base/seed-1: failed, killed by SIGKILL (out of memory?); given up" in told
    assert started(tmp_path).count("base/seed-1") == 10
    assert "tried again" in told


def test_a_crash_after_the_result_is_no_failure(tmp_path: Path) -> None:
    outcome, _ = work_on(tmp_path, {BASE: "abort"})
    assert outcome is None


@pytest.mark.filterwarnings("ignore:left out")
def test_only_a_run_with_a_broken_file_is_repeated(tmp_path: Path) -> None:
    work_on(tmp_path, {})
    broken = BASE.directory(tmp_path)
    for name in ("attempt.json", "config.json", "result.json"):
        (broken / name).write_bytes((broken / name).read_bytes()[:40])
    (broken / "checkpoint").touch()
    outcome, told = work_on(tmp_path, {})
    assert outcome is None
    assert started(tmp_path) == ["base/seed-1", "narrow/seed-1", "base/seed-1"]
    assert "; result.json cannot be read, and is now result.json.broken" in told
    assert load_result(broken) is not None and read_attempt(broken) is not None
    left = {path.name for path in broken.iterdir()}
    assert {f"{name}.json.broken" for name in ("attempt", "config", "result")} < left
    assert {"checkpoint", "config.json"} < left


@pytest.mark.filterwarnings("ignore:left out")
def test_a_run_uses_the_same_data_as_the_others(tmp_path: Path) -> None:
    work_on(tmp_path, {NARROW: "crash"}, retries=0)
    (tmp_path / "text").mkdir()
    (tmp_path / "text" / "train.en").write_text("one\n")
    manifest = make_manifest(tmp_path / "text", [("text.en", "1")])
    write_json(BASE.directory(tmp_path) / DATA_FILE, to_dict(manifest))
    clear_failures(NARROW.directory(tmp_path))
    work_on(tmp_path, {})
    assert recorded_data(NARROW.directory(tmp_path)) == manifest


def test_a_row_whose_folder_is_a_file_is_refused(tmp_path: Path) -> None:
    (tmp_path / "base").touch()
    with pytest.raises(InputError, match=r"base cannot be made, as a file is in its place"):
        work_on(tmp_path, {})


def test_a_result_is_kept_if_its_driver_died_before_publishing_it(tmp_path: Path) -> None:
    finish(tmp_path, BASE)
    BASE.directory(tmp_path).rename(tmp_path / "base" / "seed-1.attempt-3")
    work_on(tmp_path, {})
    assert started(tmp_path) == ["narrow/seed-1"]
    assert load_result(BASE.directory(tmp_path)) is not None


def test_a_run_whose_directory_is_removed_is_started_again(tmp_path: Path) -> None:
    outcome, told = work_on(tmp_path, {BASE: "remove"})
    assert outcome is None
    assert "base/seed-1: its directory was removed\n" in told
    assert started(tmp_path) == ["base/seed-1", "narrow/seed-1", "base/seed-1"]
    assert {load_result(cell.directory(tmp_path)) is None for cell in (BASE, NARROW)} == {False}


def test_bad_input_stops_the_driver(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"^base/seed-1: toy is missing: fetch it$"):
        work_on(tmp_path, {BASE: "refuse"})
    assert started(tmp_path) == ["base/seed-1"]


def test_bad_input_stops_the_other_runs(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="toy is missing"):
        work_on(tmp_path, {BASE: "refuse", NARROW: "hang"}, places=(Place(0), Place(1)))


def test_a_directory_of_another_run_is_refused(tmp_path: Path) -> None:
    other = small_plan(seeds=[2]).experiment(Cell("base", 2))
    claim(BASE.directory(tmp_path), other)
    with pytest.raises(InputError, match=r"training\.seed: 2 -> 1"):
        work_on(tmp_path, {})


def test_a_signal_stops_the_runs_after_their_checkpoint(tmp_path: Path) -> None:
    before = signal.getsignal(signal.SIGINT)
    thread = when(lambda: hangs(tmp_path, BASE), lambda: os.kill(os.getpid(), signal.SIGINT))
    outcome, told = work_on(tmp_path, {BASE: "hang"})
    thread.join()
    assert outcome == signal.SIGINT
    assert started(tmp_path) == ["base/seed-1"]
    assert "stopping after a checkpoint" in told
    assert "base/seed-1: stopped after a checkpoint" in told
    assert signal.getsignal(signal.SIGINT) is before


def test_a_driver_under_nohup_outlives_its_terminal(tmp_path: Path) -> None:
    signal.signal(signal.SIGHUP, signal.SIG_IGN)
    thread = when(lambda: bool(started(tmp_path)), lambda: os.kill(os.getpid(), signal.SIGHUP))
    outcome, _ = work_on(tmp_path, {BASE: "slow"})
    thread.join()
    assert outcome is None


def test_a_second_signal_ends_at_once(tmp_path: Path) -> None:
    def twice() -> None:
        os.kill(os.getpid(), signal.SIGTERM)
        when(lambda: "stubborn" in told(), lambda: os.kill(os.getpid(), signal.SIGTERM))

    def told() -> str:
        return (directory(tmp_path, BASE) / "log.txt").read_text()

    begun = time.monotonic()
    thread = when(lambda: hangs(tmp_path, BASE), twice)
    outcome, _ = work_on(tmp_path, {BASE: "stubborn"})
    thread.join()
    assert outcome == signal.SIGTERM
    assert time.monotonic() - begun < 20


def test_a_process_that_outlived_its_driver_is_ended_first(tmp_path: Path) -> None:
    prepare_stand_ins(tmp_path, {BASE: "hang"})
    left = BASE.directory(tmp_path).with_name("seed-1.attempt-1")
    left.mkdir(parents=True)
    (left / "attempt.json").write_text('{"cell": "base/seed-1"}')
    job = Job(root=tmp_path, name="base/seed-1", experiment=small_plan().experiment(BASE))
    orphan = start_stand_in(left, job, Place(0))
    (left / PROCESS_FILE).write_text(name_of(orphan.pid))
    when(lambda: hangs(tmp_path, BASE), lambda: None).join()
    (left / "attempt.json").unlink()
    threading.Thread(target=orphan.wait).start()  # init would collect it
    _, told = work_on(tmp_path, {})
    assert orphan.returncode == 75
    assert "; the process of an earlier attempt was ended first" in told
    assert load_result(BASE.directory(tmp_path)) is not None


def test_another_process_with_the_same_number_is_left_alone(tmp_path: Path) -> None:
    stranger = subprocess.Popen([sys.executable, "-S", "-c", "import time; time.sleep(60)"])
    try:
        left = BASE.directory(tmp_path).with_name("seed-1.attempt-1")
        left.mkdir(parents=True)
        host, number, _, machine = name_of(stranger.pid).rsplit(":", 3)
        (left / PROCESS_FILE).write_text(f"{host}:{number}:12345:{machine}")
        work_on(tmp_path, {})
        assert stranger.poll() is None
    finally:
        stranger.kill()
        stranger.wait()


def test_each_gpu_has_its_run(tmp_path: Path) -> None:
    work_on(tmp_path, {}, places=(Place(0, (3,)), Place(1, ("MIG-a", "MIG-b"), 2)))
    lines = (tmp_path / "started.txt").read_text().splitlines()
    assert sorted(line.split()[1] for line in lines) == ["3", "MIG-a,MIG-b"]
    attempt = read_attempt(NARROW.directory(tmp_path))
    assert attempt is not None and attempt.devices in {(3,), ("MIG-a", "MIG-b")}


def test_an_attempt_knows_what_went_before(tmp_path: Path) -> None:
    work_on(tmp_path, {BASE: "crash"}, retries=1)
    attempt = read_attempt(directory(tmp_path, BASE))
    assert attempt is not None
    assert (attempt.number, attempt.cell) == (2, "base/seed-1")
    assert attempt.worker == own_name()
