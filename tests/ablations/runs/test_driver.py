"""Attempts at runs, by stand-ins: what is started, what a crash or a signal leaves."""

from __future__ import annotations

import math
import os
import re
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from ablations.files import STUDY_FILE
from ablations.folder import SearchFolder
from ablations.runs.attempts import (
    clear_failures,
    is_elsewhere,
    leave_pruned,
    record_failure,
    take_over,
)
from ablations.runs.driver import Driver
from ablations.runs.options import Options
from ablations.runs.process import Job, Place
from ablations.runs.search_runs import SearchRuns
from ablations.runs.study import Study
from ablations.runs.supervise import (
    AttemptEnd,
    LocalExecutor,
    Request,
    _end_orphan,
    _publish,
    supervise,
)
from ablations.runs.table_runs import TableRuns
from ablations.status.status import DirectoryReader
from ablations.status.view import as_text, failed
from ablations.tables.plan import Plan
from ablations.tables.plan_file import claim_plan
from ablations.tables.table import Cell
from experiments.records.attempt import Attempt, read_attempt, write_attempt
from experiments.records.data import recorded_data
from experiments.records.experiment import DATA_FILE, Experiment
from experiments.records.ownership import claim, lock_directory
from experiments.records.processes import name_of, own_name
from experiments.records.progress import Progress, RunState, read_progress, write_progress
from experiments.records.result import load_result
from experiments.records.run import attempt_number, locate, read_run
from tests.ablations.samples import (
    finish,
    hangs,
    leave_curve,
    prepare_stand_ins,
    small_plan,
    start_stand_in,
    started,
    when,
)
from tests.ablations.search.samples import journal, leave, small_search
from tests.ablations.search.samples import work_on as work_on_trials
from transformer.config import to_dict
from transformer.data.prepared import make_manifest
from transformer.errors import InputError
from transformer.files import write_json

BASE, NARROW = Cell("base", 1), Cell("narrow", 1)
TWO = (Place(0), Place(1))


def work_on(
    root: Path,
    behaviour: Mapping[Cell, str],
    *,
    plan: Plan | None = None,
    places: Sequence[Place] = (Place(0),),
    retries: int = 0,
    told: list[str] | None = None,
) -> tuple[signal.Signals | None, str]:
    """Carry out what is left with stand-ins; the signal that ended it, and the notes."""
    prepare_stand_ins(root, behaviour)
    claim_plan(root, plan or small_plan())
    planned, told = TableRuns(root), list[str]() if told is None else told
    driver = Driver(
        planned,
        LocalExecutor(places, start_stand_in),
        [x.name for x in planned.folder.look() if not x.has_ended and not x.is_given_up],
        Options(retries=retries),
        note=told.append,
        show=lambda: None,
    )
    return driver.run(), "\n".join(told)


def is_done(root: Path, *cells: Cell) -> bool:
    return all(load_result(cell.directory(root)) is not None for cell in cells)


def test_all_runs_start_the_longest_first_and_once(tmp_path: Path) -> None:
    plan = small_plan(["base", "narrow"], [1, 2])
    finish(tmp_path, NARROW)
    outcome, told = work_on(tmp_path, {}, plan=plan)
    assert outcome is None
    assert started(tmp_path) == ["base/seed-1", "base/seed-2", "narrow/seed-2"]
    assert "base/seed-1: started\n" in told
    assert "narrow/seed-2: finished in 1 min 02 s, perplexity" in told  # as status says
    assert not list(tmp_path.glob("*/*.attempt-*"))
    unfinished = (tmp_path / STUDY_FILE).rename(tmp_path / ".study.log.part")
    work_on(tmp_path, {}, plan=plan)
    assert len(started(tmp_path)) == 3 and not unfinished.exists()


@pytest.mark.slow
@pytest.mark.parametrize(
    ("behaviour", "retries", "starts", "note"),
    [
        ("diverge", 2, 1, "diverged at step 7 after 1 min 02 s"),  # is a result
        ("kill", 0, 3, "failed, killed by SIGKILL (out of memory?); given up"),
        ("real-time signal", 0, 1, "failed, killed by signal 40; given up"),
        ("leave", 0, 3, "failed, a signal from elsewhere, or its own code, stopped it; given up"),
        ("refuse", 2, 1, "refused, toy is missing: fetch it; given up"),
        ("vanish", 0, 3, "this happened 3 times; given up"),
        ("abort", 0, 1, "finished in"),  # a crash after the result is no failure
        ("remove", 0, 2, "its directory was removed"),
    ],
)
def test_how_a_run_fails_says_how_often_it_is_tried(
    behaviour: str,
    retries: int,
    starts: int,
    note: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("ablations.runs.attempts._MOST_KILLS", 3)
    monkeypatch.setattr("ablations.runs.driver._MOST_IN_VAIN", 2)
    outcome, told = work_on(tmp_path, {BASE: behaviour}, retries=retries)
    assert outcome is None
    assert started(tmp_path).count("base/seed-1") == starts
    assert re.search(f"^base/seed-1: .*{re.escape(note)}", told, re.MULTILINE), told
    assert is_done(tmp_path, NARROW)
    assert is_done(tmp_path, BASE) == (behaviour in ("abort", "diverge", "remove"))


@pytest.mark.slow
def test_a_run_that_diverged_has_a_result_and_is_never_tried_again(tmp_path: Path) -> None:
    for _ in range(2):
        outcome, _ = work_on(tmp_path, {BASE: "diverge"}, retries=2)
        assert outcome is None
    assert started(tmp_path) == ["base/seed-1", "narrow/seed-1"]
    run = read_run(BASE.directory(tmp_path))
    assert run.is_published and run.result is not None and not run.is_given_up
    assert (run.result.perplexity, run.result.bleu, run.diverged_at) == (math.inf, None, 7)
    status = DirectoryReader(tmp_path).read()
    assert status.is_over and not failed(status)
    assert as_text(status.runs[0], status)[:3] == ("base/seed-1", "done", "diverged at step 7")
    # Optuna takes finite values alone.
    assert [trial.state.name for trial in journal(tmp_path)] == ["COMPLETE"]


@pytest.mark.slow
def test_a_run_that_was_refused_is_given_up_and_not_tried_by_the_next_command(
    tmp_path: Path,
) -> None:
    work_on(tmp_path, {BASE: "refuse"}, retries=2)
    left = read_attempt(locate(BASE.directory(tmp_path)))
    assert left is not None and left.given_up
    assert [failure.reason for failure in left.failures] == ["toy is missing: fetch it"]
    assert work_on(tmp_path, {})[0] is None
    clear_failures(BASE.directory(tmp_path))  # as --retry-failed does
    work_on(tmp_path, {BASE: "refuse"})
    # Alone, as the table's other run has finished.
    assert read_run(BASE.directory(tmp_path)).is_given_up
    assert started(tmp_path).count("base/seed-1") == 2


@pytest.mark.slow
def test_if_all_rows_are_refused_for_one_reason_the_table_stops_and_none_is_given_up(
    tmp_path: Path,
) -> None:
    plan = small_plan(["base", "narrow", "free"], range(1, 100))
    refused = dict.fromkeys(plan.cells, "refuse")
    with pytest.raises(InputError, match=r"base/seed-1 \(and 2 more\): toy is missing: fetch it"):
        work_on(tmp_path, refused, plan=plan)
    assert started(tmp_path) == ["base/seed-1", "narrow/seed-1", "free/seed-1"]  # of 297
    assert not any(read_run(cell.directory(tmp_path)).is_given_up for cell in plan.cells)


@pytest.mark.slow
def test_a_run_whose_text_is_missing_is_left_to_the_next_command(tmp_path: Path) -> None:
    told = list[str]()
    with pytest.raises(InputError, match=r"^base/seed-1: text.en does not exist$"):
        work_on(tmp_path, {BASE: "block"}, told=told)
    assert "base/seed-1: text.en does not exist; left for now" in told
    assert is_done(tmp_path, NARROW) and not read_run(BASE.directory(tmp_path)).is_given_up
    work_on(tmp_path, {})
    assert is_done(tmp_path, BASE)


@pytest.mark.slow
def test_a_run_of_another_driver_is_left_to_it_until_it_ends(tmp_path: Path) -> None:
    directory = begin_attempt(BASE.directory(tmp_path))
    with subprocess.Popen(["sleep", "600"]) as other:
        attempt = read_attempt(directory)
        assert attempt is not None
        write_attempt(directory, replace(attempt, worker=name_of(other.pid)))
        told = list[str]()
        waits = "base/seed-1: another driver works on it, and this one waits for its end"
        thread = when(lambda: NARROW.directory(tmp_path).exists(), other.kill)
        work_on(tmp_path, {}, told=told)
        thread.join()
    assert told.count(waits) == 1 and told.index(waits) < told.index("narrow/seed-1: started")
    assert "base/seed-1: started (attempt 2)" in told and is_done(tmp_path, BASE)


def test_a_run_of_another_machine_is_elsewhere_while_it_reports(tmp_path: Path) -> None:
    stem = BASE.directory(tmp_path)
    assert not is_elsewhere(stem)
    directory = begin_attempt(stem)
    assert not is_elsewhere(stem)  # it began in 1970
    write_progress(directory, Progress(stage=RunState.TRAIN))
    assert is_elsewhere(stem)
    write_progress(directory, Progress(stage=RunState.STOPPED))
    assert not is_elsewhere(stem)


class Stranded(LocalExecutor):
    """A cluster without a node until the driver has said so."""

    def places(self) -> Sequence[Place]:
        return super().places() if told_of_no_node else ()


told_of_no_node = list[str]()


@pytest.mark.slow
def test_a_driver_without_a_node_says_how_many_runs_wait(tmp_path: Path) -> None:
    prepare_stand_ins(tmp_path, {})
    claim_plan(tmp_path, small_plan())
    told_of_no_node.clear()
    driver = Driver(
        TableRuns(tmp_path),
        Stranded([Place(0)], start_stand_in),
        [str(BASE), str(NARROW)],
        Options(),
        note=told_of_no_node.append,
        show=lambda: None,
    )
    assert driver.run() is None and is_done(tmp_path, BASE, NARROW)
    assert told_of_no_node[0] == "no node with room is left: 2 runs wait for one"


@pytest.mark.slow
def test_a_run_that_is_given_up_tells_why_and_is_tried_again_once_that_is_cleared(
    tmp_path: Path,
) -> None:
    _, told = work_on(tmp_path, {BASE: "crash"}, retries=1)
    assert "exit code 1: RuntimeError: it broke; it is tried again\n    Traceback" in told
    assert "base/seed-1: started (attempt 2)" in told and is_done(tmp_path, NARROW)
    left = locate(BASE.directory(tmp_path))
    progress, attempt = read_progress(left), read_attempt(left)
    assert progress is not None and attempt is not None
    assert (progress.stage, progress.message) == ("failed", "exit code 1: RuntimeError: it broke")
    assert [failure.attempt for failure in attempt.failures] == [1, 2]
    assert attempt.failures[0].lines[-1] == "RuntimeError: it broke"
    assert (attempt.number, attempt.cell, attempt.given_up) == (2, "base/seed-1", True)
    assert attempt.worker == own_name()
    work_on(tmp_path, {})
    assert started(tmp_path).count("base/seed-1") == 2
    clear_failures(BASE.directory(tmp_path))
    work_on(tmp_path, {})
    assert started(tmp_path).count("base/seed-1") == 3 and is_done(tmp_path, BASE)


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore:left out")
def test_only_a_run_with_a_broken_file_is_repeated(tmp_path: Path) -> None:
    work_on(tmp_path, {})
    broken = BASE.directory(tmp_path)
    for name in ("attempt.json", "config.json", "result.json"):
        (broken / name).write_bytes((broken / name).read_bytes()[:40])
    (broken / "checkpoint").touch()
    _, told = work_on(tmp_path, {})
    assert started(tmp_path) == ["base/seed-1", "narrow/seed-1", "base/seed-1"]
    assert "; result.json cannot be read, and is now result.json.broken" in told
    assert load_result(broken) is not None and read_attempt(broken) is not None
    left = {path.name for path in broken.iterdir()}
    assert {f"{name}.json.broken" for name in ("attempt", "config", "result")} < left
    assert {"checkpoint", "config.json"} < left


@pytest.mark.slow
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


@pytest.mark.slow
def test_a_result_is_kept_if_its_driver_died_before_publishing_it(tmp_path: Path) -> None:
    finish(tmp_path, BASE)
    BASE.directory(tmp_path).rename(tmp_path / "base" / "seed-1.attempt-3")
    work_on(tmp_path, {})
    assert started(tmp_path) == ["narrow/seed-1"] and is_done(tmp_path, BASE)


@pytest.mark.parametrize("kind", ["file", "empty", "foreign", "beside an attempt"])
def test_what_has_the_name_of_a_run_and_is_none_is_refused_before_any_training(
    tmp_path: Path, kind: str
) -> None:
    stem = NARROW.directory(tmp_path)
    if kind == "file":
        stem.parent.mkdir()
        stem.touch()
    else:
        stem.mkdir(parents=True)
        (stem / "config.json" if kind == "beside an attempt" else stem / "thesis.txt").touch()
    if kind == "empty":
        (stem / "thesis.txt").unlink()
    if kind == "beside an attempt":
        stem.with_name("seed-1.attempt-3").mkdir()
    with pytest.raises(InputError, match=r"narrow/seed-1 has a run.s name but is not a run"):
        work_on(tmp_path, {})
    assert not started(tmp_path) and stem.exists()


@pytest.mark.slow
def test_a_run_whose_name_is_taken_while_it_trains_keeps_its_result(tmp_path: Path) -> None:
    stem = BASE.directory(tmp_path)
    finish(tmp_path, BASE)
    attempt = stem.rename(stem.with_name("seed-1.attempt-3"))
    stem.touch()
    end = _publish(attempt, tmp_path, str(BASE), "")
    assert end is not None and end.state == RunState.BLOCKED
    assert f"{attempt} has ended, but cannot be renamed to {stem}" in end.reason
    stem.unlink()
    work_on(tmp_path, {})
    assert started(tmp_path) == ["narrow/seed-1"] and is_done(tmp_path, BASE)


def test_a_directory_of_something_else_is_refused(tmp_path: Path) -> None:
    (tmp_path / "base").touch()
    with pytest.raises(InputError, match=r"base cannot be made, as a file is in its place"):
        work_on(tmp_path, {})


@pytest.mark.slow
def test_a_driver_under_nohup_outlives_its_terminal(tmp_path: Path) -> None:
    signal.signal(signal.SIGHUP, signal.SIG_IGN)
    thread = when(lambda: bool(started(tmp_path)), lambda: os.kill(os.getpid(), signal.SIGHUP))
    outcome, _ = work_on(tmp_path, {BASE: "slow"})
    thread.join()
    assert outcome is None


@pytest.mark.slow
def test_the_first_signal_after_a_refusal_kills_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    log, begin = tmp_path / "base" / "seed-1.attempt-1" / "log.txt", Study.begin

    def refuse(study: Study, name: str) -> Experiment:
        if name == str(NARROW):
            when(lambda: hangs(tmp_path, BASE), lambda: None).join()
            raise InputError("no trial is left")
        return begin(study, name)

    monkeypatch.setattr(Study, "begin", refuse)

    def twice() -> None:
        for _ in range(2):
            os.kill(os.getpid(), signal.SIGTERM)
            time.sleep(1)

    thread = when(lambda: log.exists() and "stubborn" in log.read_text(), twice)
    told = list[str]()
    with pytest.raises(InputError, match="no trial is left"):
        work_on(tmp_path, {BASE: "stubborn"}, places=TWO, told=told)
    thread.join()
    assert told[-3] == "stopping after a checkpoint (a second signal kills the runs)"
    assert told[-2] == "killing the runs"


@pytest.mark.slow
def test_an_orphan_is_left_to_end_by_itself_after_its_checkpoint(tmp_path: Path) -> None:
    """Its driver's end was the first signal to it, and a second would kill it."""
    orphan = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(1)"])
    (tmp_path / ".process").write_text(name_of(orphan.pid))
    ended = threading.Thread(target=orphan.wait)
    ended.start()
    notes = _end_orphan(tmp_path, lambda: Request.CONTINUE)
    assert notes == ["the process of an earlier attempt was ended first"]
    ended.join()
    assert orphan.returncode == 0


@pytest.mark.parametrize("paused", [False, True])
def test_an_orphan_that_takes_too_long_is_killed_and_one_that_is_paused_goes_on(
    paused: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("ablations.runs.supervise.GRACE_SECONDS", 30 if paused else 0.3)
    seconds = "0.3" if paused else "1000"
    with (tmp_path / "log.txt").open("w") as log:
        orphan = subprocess.Popen(["sleep", seconds], stdout=log, start_new_session=True)
    if paused:
        orphan.send_signal(signal.SIGSTOP)
    (tmp_path / ".process").write_text(name_of(orphan.pid))
    begun = time.monotonic()
    assert _end_orphan(tmp_path, lambda: Request.CONTINUE)
    assert orphan.wait() == (0 if paused else -signal.SIGKILL)
    assert time.monotonic() - begun < 20


@pytest.mark.slow
@pytest.mark.parametrize(
    ("behaviour", "end"), [("hang", "stopped after a checkpoint"), ("stubborn", "stopped")]
)
def test_a_driver_that_fails_ends_its_runs_first(
    behaviour: str, end: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """After a checkpoint, and those that do not end so by force."""
    monkeypatch.setattr("ablations.runs.supervise.GRACE_SECONDS", 0.5 if end == "stopped" else 10)
    prepare_stand_ins(tmp_path, {BASE: behaviour})
    claim_plan(tmp_path, small_plan())
    ends = list[AttemptEnd]()

    def supervise_and_tell(*arguments: Any) -> AttemptEnd:
        ends.append(supervise(*arguments))
        return ends[-1]

    def fail() -> None:
        if hangs(tmp_path, BASE):
            raise KeyError("a fault of the driver")

    monkeypatch.setattr("ablations.runs.supervise.supervise", supervise_and_tell)
    executor, planned = LocalExecutor([Place(0)], start_stand_in), TableRuns(tmp_path)
    driver = Driver(planned, executor, [str(BASE)], Options(), note=lambda _: None, show=fail)
    with pytest.raises(KeyError):
        driver.run()
    assert [found.text for found in ends] == [end]


@pytest.mark.parametrize("is_of_this_directory", [True, False])
@pytest.mark.skipif(not Path("/proc/self/fd").exists(), reason="needs /proc")
def test_only_a_process_of_this_directory_is_killed_whatever_its_file_says(
    is_of_this_directory: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A copy of a directory names the process of the original."""
    monkeypatch.setattr("ablations.runs.supervise.GRACE_SECONDS", 0.0)
    (tmp_path / "log.txt").touch()
    log = tmp_path / ("log.txt" if is_of_this_directory else "other.txt")
    with log.open("w") as output:
        orphan = subprocess.Popen(["sleep", "600"], stdout=output, start_new_session=True)
    (tmp_path / ".process").write_text(name_of(orphan.pid))
    ended = threading.Thread(target=orphan.wait)
    ended.start()
    said = _end_orphan(tmp_path, lambda: Request.CONTINUE)
    assert len(said) == is_of_this_directory and (orphan.poll() is None) != is_of_this_directory
    orphan.kill()
    ended.join()


@pytest.mark.slow
def test_a_second_signal_ends_at_once(tmp_path: Path) -> None:
    log = tmp_path / "base" / "seed-1.attempt-1" / "log.txt"

    def twice() -> None:
        os.kill(os.getpid(), signal.SIGTERM)
        when(lambda: "stubborn" in log.read_text(), lambda: os.kill(os.getpid(), signal.SIGTERM))

    begun = time.monotonic()
    thread = when(lambda: hangs(tmp_path, BASE), twice)
    outcome, _ = work_on(tmp_path, {BASE: "stubborn"})
    thread.join()
    assert outcome == signal.SIGTERM
    assert time.monotonic() - begun < 20


@pytest.mark.slow
def test_each_gpu_has_its_run(tmp_path: Path) -> None:
    work_on(tmp_path, {}, places=(Place(0, (3,)), Place(1, ("MIG-a", "MIG-b"), 2)))
    lines = (tmp_path / "started.txt").read_text().splitlines()
    assert sorted(line.split()[1] for line in lines) == ["3", "MIG-a,MIG-b"]
    attempt = read_attempt(NARROW.directory(tmp_path))
    assert attempt is not None and attempt.devices in {(3,), ("MIG-a", "MIG-b")}


class Validating:
    """Carries out a trial by a validation in each turn, and two more once it is to end early."""

    where = "here"

    def __init__(self, every: int) -> None:
        self._every, self._curve = every, dict[int, float]()
        self._job: Job | None = None

    def places(self) -> Sequence[Place]:
        return [Place(0)]

    def start(self, job: Job, place: Place) -> None:
        self._job = job
        claim(begin_attempt(job.root / job.name), job.experiment)

    def ended(self) -> Sequence[tuple[str, AttemptEnd]]:
        if self._job is None:
            return []
        stem = self._job.root / self._job.name
        pruned = read_run(stem).pruned
        last = len(self._curve) * self._every
        if pruned is None or last < pruned.step + 2 * self._every:
            self._curve[last + self._every] = 99.0
            leave_curve(locate(stem), self._curve)
            return []
        locate(stem).rename(stem)
        end = AttemptEnd(state=RunState.PRUNED, text="ended", ended=read_run(stem))
        return [(self._job.name, end)]

    def stop(self, request: Request) -> None: ...
    def close(self) -> None: ...


@pytest.mark.slow
def test_a_poor_trial_ends_where_it_was_found_poor_however_long_it_takes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("ablations.runs.driver._PRUNE_SECONDS", 0)
    search = small_search(tmp_path, pruner="median")
    work_on_trials(tmp_path, lambda values: 3.0, count=6)
    executor = Validating(search.base.training.validate_every_steps)
    name, told = search.names[6], list[str]()
    driver = Driver(
        SearchRuns(tmp_path), executor, [name], Options(), note=told.append, show=lambda: None
    )
    assert driver.run() is None and told == [f"{name}: started", f"{name}: ended"]
    trial, known = SearchFolder(tmp_path).trials()[6], journal(tmp_path)[6]
    assert (trial.state, trial.step, trial.perplexity) == ("pruned", search.rungs[0], 99.0)
    assert (known.state.name, known.last_step) == ("PRUNED", search.rungs[0])


def test_a_trial_ends_early_by_a_file_when_it_diverges_or_with_a_result_that_came_first(
    tmp_path: Path,
) -> None:
    root = tmp_path / "search"
    search = small_search(root, trials=3)
    early, diverges, first = search.names
    prepare_stand_ins(tmp_path, {early: "hang", diverges: "diverge"})
    leave(search, root / f"{first}.attempt-1", search.first() | {"learning_rate_factor": 0.7})
    leave_pruned(locate(root / first), 668, 9.0)

    def trains() -> bool:
        progress = read_progress(locate(root / early))
        return progress is not None and progress.step == 40

    thread = when(trains, lambda: leave_pruned(locate(root / early), 40, 9.0))
    driver = Driver(
        SearchRuns(root),
        LocalExecutor(TWO, start_stand_in),
        search.names,
        Options(),
        note=(told := list[str]()).append,
        show=lambda: None,
    )
    assert driver.run() is None
    thread.join()
    assert sorted(started(tmp_path)) == [early, diverges]  # once each
    trials = SearchFolder(root).trials()
    assert [(trial.state, trial.step) for trial in trials[:2]] == [("pruned", 40), ("diverged", 7)]
    assert trials[2].state == "done" and not (root / first / "pruned.json").exists()
    assert [trial.state.name for trial in journal(root)] == ["PRUNED", "PRUNED", "COMPLETE"]
    assert any(line.startswith(f"{early}: ended early after ") for line in told)


def begin_attempt(stem: Path) -> Path:
    directory = take_over(stem)
    assert directory is not None
    count = attempt_number(directory)
    begun = Attempt(cell="c", number=count, worker="w", host="h", started_at=1.0)
    write_attempt(directory, begun)
    return directory


def test_the_next_attempt_has_the_files_and_the_earlier_one_can_write_nothing(
    tmp_path: Path,
) -> None:
    stem = tmp_path / "base" / "seed-1"
    assert locate(stem) == stem
    first = begin_attempt(stem)
    (first / "step").write_text("5")
    (first / ".lock-1").touch()
    second = begin_attempt(stem)
    assert (second.name, (second / "step").read_text()) == ("seed-1.attempt-2", "5")
    assert locate(stem) == second and not (second / ".lock-1").exists()
    with pytest.raises(FileNotFoundError):
        claim(first, small_plan().experiment(BASE))
    with pytest.raises(FileNotFoundError):
        write_progress(first, Progress(stage=RunState.TRAIN))
    assert not record_failure(first, "broke", [], killed=False, retries=0)
    assert not first.exists()
    left = read_attempt(second)
    assert left is not None and not left.failures


@pytest.mark.slow
def test_what_a_killed_attempt_left_half_written_goes_before_the_next_process_starts(
    tmp_path: Path,
) -> None:
    """A process does not remove it itself: its supervisor writes next to it while it starts."""
    half = begin_attempt(tmp_path / "narrow" / "seed-1") / ".process.0d894f7b.part"
    half.touch()
    with lock_directory(half.parent):
        assert half.exists()
    work_on(tmp_path, {})
    assert is_done(tmp_path, BASE, NARROW) and not list(tmp_path.rglob(".*.part"))


def test_the_tenth_attempt_is_newer_than_the_ninth(tmp_path: Path) -> None:
    for count in (9, 10, 2):
        (tmp_path / f"seed-1.attempt-{count}").mkdir()
    assert attempt_number(locate(tmp_path / "seed-1")) == 10


def test_kills_count_only_if_none_makes_progress(tmp_path: Path) -> None:
    directory = begin_attempt(tmp_path / "seed-1")
    for step in range(1, 30):
        write_progress(directory, Progress(stage=RunState.TRAIN, step=step, max_steps=99))
        assert not record_failure(directory, "killed", [], killed=True, retries=0)
    ends = [record_failure(directory, "killed", [], killed=True, retries=0) for _ in range(9)]
    assert ends == [False] * 8 + [True]
