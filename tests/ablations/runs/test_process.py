"""A run in a process of its own: its surroundings, its end, and its parent's."""

from __future__ import annotations

import csv
import json
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from ablations.runs import identity, process
from ablations.runs.executor import Job, Place, RunProcess
from ablations.runs.forkserver import ForkServer
from experiments.records.attempt import write_attempt
from experiments.records.checkpoints import step_checkpoints
from experiments.records.ownership import claim
from experiments.records.progress import STOPPED_EXIT_CODE, read_progress
from experiments.records.result import load_result
from tests.ablations.runs.processes import Finished
from tests.ablations.storm.processes import parent_of
from tests.experiments.conftest import Command, Start
from tests.experiments.records.test_records import ATTEMPT
from tests.experiments.samples import tiny_experiment

_PATIENCE_SECONDS = 240.0
_ROOT = str(Path(__file__).parents[3])
LONG = {"max_steps": 100_000, "checkpoint_every_steps": 50_000}


@pytest.fixture
def server() -> Iterator[ForkServer]:
    server = ForkServer()
    yield server
    server.close()


def job_of(folder: Path, **settings: Any) -> Job:
    job = Job(root=folder, name="run", experiment=tiny_experiment(folder), log="none")
    return replace(job, **settings)


def ended(process: RunProcess) -> int:
    _wait(lambda: process.poll() is not None)
    code = process.poll()
    assert code is not None
    return code


def _wait(holds: Callable[[], bool]) -> None:
    deadline = time.monotonic() + _PATIENCE_SECONDS
    while not holds():
        assert time.monotonic() < deadline, "it hangs"
        time.sleep(0.005)


def trains(directory: Path) -> bool:
    metrics = directory / "metrics.csv"
    return metrics.exists() and metrics.read_text().count("\n") > 3


def claimed(directory: Path, folder: Path, **settings: Any) -> Path:
    claim(directory, tiny_experiment(folder, **settings))
    return directory


@pytest.mark.slow
def test_neither_the_server_nor_what_waits_for_a_run_is_missed(
    server: ForkServer, folder: Path, tmp_path: Path
):
    job, directory = job_of(folder), claimed(tmp_path / "run", folder, **LONG)
    (other := tmp_path / "other").mkdir()
    run = server.start(directory, job, Place(0))
    _wait(lambda: trains(directory))
    assert os.getpgid(run.pid) == run.pid and server._server is not None
    server._server.kill()
    assert (
        ended(server.start(other, job, Place(0))) == 2
    )  # a new server's, which has no config.json
    assert run.poll() is None
    os.kill(parent_of(run.pid), signal.SIGKILL)
    assert ended(run) == run.poll() == -signal.SIGKILL
    _wait(lambda: identity.is_running(identity.name_of(run.pid)) is False)
    os.kill(server._server.pid, signal.SIGSTOP)
    threading.Timer(0.3, server._server.kill).start()  # while a process starts
    assert ended(server.start(other, job, Place(0))) == 2


_PARENT = """
import signal, sys, time
from pathlib import Path
from ablations.runs.executor import Job, Place
from ablations.runs.forkserver import ForkServer
from experiments.records.experiment import load_experiment

directory = Path(sys.argv[1])
server = ForkServer()
job = Job(root=directory.parent, name="run", experiment=load_experiment(directory), log="csv")
with (directory / "mains").open("a") as mains:
    mains.write("one\\n")
for number in (signal.SIGINT, signal.SIGTERM):
    signal.signal(number, signal.SIG_IGN)
print(server.start(directory, job, Place(0)).pid, flush=True)
sys.stdin.readline()
process = server.start(directory.parent, job, Place(0))  # which is no run's directory
while process.poll() is None:
    time.sleep(0.01)
print(process.poll(), flush=True)
time.sleep(1000)
"""


def _marked(marker: str) -> set[int]:
    """The processes that were started with ``marker`` in their environment, but for ended ones."""
    found: set[int] = set()
    for path in Path("/proc").glob("[0-9]*/environ"):
        try:
            if marker.encode() in path.read_bytes():
                found.add(int(path.parent.name))
        except OSError:
            pass  # it has ended, or is another user's
    return found


def test_signals_to_the_terminals_group_reach_the_parent_alone_and_nothing_outlives_it(
    folder: Path, tmp_path: Path
):
    directory, script = claimed(tmp_path / "run", folder, **LONG), tmp_path / "parent.py"
    script.write_text(_PARENT)  # without a guard, so a forked process must not run it again
    parent = subprocess.Popen(
        [sys.executable, script, directory],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        env=os.environ | {"WANDB_MODE": "disabled", "MARKER": str(tmp_path), "PYTHONPATH": _ROOT},
        start_new_session=True,
        text=True,
    )
    assert parent.stdin is not None and parent.stdout is not None
    child = int(parent.stdout.readline())
    _wait(lambda: trains(directory))
    for number in (signal.SIGINT, signal.SIGTERM):
        os.killpg(parent.pid, number)
    parent.stdin.write("\n")
    parent.stdin.flush()
    assert parent.stdout.readline() == "2\n"  # the fork server is still there
    assert child in _marked(f"MARKER={tmp_path}")
    parent.kill()
    parent.wait()
    _wait(lambda: not _marked(f"MARKER={tmp_path}"))
    parent.stdin.close()
    parent.stdout.close()
    assert len(step_checkpoints(directory)) == 1
    assert "the same command continues there" in (directory / "log.txt").read_text()
    assert (directory / "csv" / "metrics.csv").is_file()
    assert (directory / "mains").read_text() == "one\n"


def test_a_process_gets_its_devices_but_not_the_rank_of_this_one(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, server: ForkServer
):
    monkeypatch.setenv("SLURM_PROCID", "3")
    job = job_of(folder, accumulate=11, environment={"MORE": "word"})
    plain = process.start(tmp_path, job, Place(0, (3, 5)))
    environment = set(Path(f"/proc/{plain.pid}/environ").read_bytes().split(b"\0"))
    plain.kill()
    ended(plain)
    assert {b"CUDA_VISIBLE_DEVICES=3,5", b"MORE=word"} < environment
    assert b"SLURM_PROCID=3" not in environment
    orders: list[bytes] = []
    monkeypatch.setattr(server, "_fork", lambda order, log: orders.append(order))
    server.start(tmp_path, job, Place(0, (3, 5)))
    variables = {"CUDA_VISIBLE_DEVICES": "3,5"}
    assert [json.loads(order) for order in orders] == [[variables, str(tmp_path), "11", "none"]]


def test_a_plain_process_does_the_same_and_stops_when_its_parent_is_gone(
    folder: Path, tmp_path: Path
):
    directory = claimed(tmp_path / "run", folder, **LONG)
    plain = process.start(directory, job_of(folder), Place(0))
    _wait(lambda: plain.poll() is not None or trains(directory))
    assert os.getpgid(plain.pid) == plain.pid and plain.stdin is not None
    plain.stdin.close()  # as the operating system does for a parent that is killed
    assert plain.wait(_PATIENCE_SECONDS) == STOPPED_EXIT_CODE
    assert len(step_checkpoints(directory)) == 1


@pytest.mark.slow
def test_a_paused_process_cannot_disturb_the_attempt_that_replaced_it(
    server: ForkServer, folder: Path, tmp_path: Path
):
    job = job_of(folder, log="wandb")
    experiment = tiny_experiment(folder, max_steps=200, checkpoint_every_steps=25)
    stale, newer = tmp_path / "seed-3.attempt-1", tmp_path / "seed-3.attempt-2"
    claim(stale, experiment)
    write_attempt(stale, replace(ATTEMPT, number=1))
    paused = server.start(stale, job, Place(0))
    _wait(lambda: len(step_checkpoints(stale)) > 0)
    os.killpg(paused.pid, signal.SIGSTOP)
    assert load_result(stale) is None, "it was too fast"
    stale.rename(newer)
    write_attempt(newer, replace(ATTEMPT, number=2))
    assert ended(server.start(newer, job, Place(0))) == 0
    before = {path: path.read_bytes() for path in newer.glob("*.*") if path.name != "log.txt"}
    os.killpg(paused.pid, signal.SIGCONT)
    assert ended(paused) == STOPPED_EXIT_CODE
    assert {path: path.read_bytes() for path in before} == before
    assert list(tmp_path.iterdir()) == [newer]
    log = (newer / "log.txt").read_text()
    assert log.endswith("another attempt has taken this run over\n")
    assert "Traceback" not in log
    with (newer / "metrics.csv").open(newline="") as file:
        steps = [int(row["step"]) for row in csv.DictReader(file) if row["loss"]]
    assert steps == list(range(1, 201))


@pytest.fixture
def carry_out(command: Command, tmp_path: Path) -> Callable[[], Finished]:
    """Carries out the run in ``tmp_path / "run"`` in a process of its own."""
    words = "ablations.runs.entry", tmp_path / "run", "1", "none"
    return lambda: command(*words, stdin=None)


def test_it_scores_only_the_splits_of_the_experiment(
    folder: Path, carry_out: Callable[[], Finished], tmp_path: Path
):
    claim(tmp_path / "run", tiny_experiment(folder, ("valid",), max_steps=2))
    ended = carry_out()
    assert ended.code == 0, ended
    result = load_result(tmp_path / "run")
    assert result is not None and result.test_bleu is None
    assert not (tmp_path / "run" / "test.hypotheses.txt").exists()


def test_a_signal_before_training_ends_the_run_as_stopped(
    folder: Path, begin: Start, tmp_path: Path
):
    directory = claimed(tmp_path / "run", folder)
    running = begin("ablations.runs.entry", directory, "1", "none", stdin=None)
    running.wait_until(lambda: read_progress(directory) is not None)
    assert running.finish(signal.SIGTERM).code == STOPPED_EXIT_CODE
    progress = read_progress(directory)
    assert progress is not None and progress.stage == "stopped"


@pytest.mark.parametrize(
    ("settings", "code", "stage", "message"),
    [
        ({"vocab_size": 5_000}, 2, "refused", "more than the text allows"),
        ({"learning_rate_factor": 1e30}, 1, "diverged", "training diverged: the gradient of step "),
    ],
)
def test_how_a_run_ends_is_its_last_line_and_in_its_progress(
    settings: dict[str, Any],
    code: int,
    stage: str,
    message: str,
    folder: Path,
    carry_out: Callable[[], Finished],
    tmp_path: Path,
):
    directory = claimed(tmp_path / "run", folder, **settings)
    ended = carry_out()
    assert ended.code == code, ended
    assert message in ended.lines[-1]
    progress = read_progress(directory)
    assert progress is not None
    assert (progress.stage, progress.message) == (stage, ended.lines[-1])
