"""A run in a process of its own: its surroundings, its end, and its parent's."""

from __future__ import annotations

import csv
import json
import os
import signal
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from ablations.runs import forkserver, process
from ablations.runs.entry import run_forked
from ablations.runs.executor import Job, Place
from ablations.runs.forkserver import ForkedProcess
from ablations.runs.supervise import RunProcess
from experiments.records.attempt import write_attempt
from experiments.records.checkpoints import step_checkpoints
from experiments.records.ownership import claim
from experiments.records.progress import STOPPED_EXIT_CODE, read_progress
from experiments.records.result import load_result
from tests.experiments.conftest import Command, Start
from tests.experiments.run.test_attempt import ATTEMPT
from tests.experiments.samples import tiny_experiment

_PATIENCE_SECONDS = 240.0
_ROOT = str(Path(__file__).parents[3])


def job_of(root: Path, folder: Path, **settings: Any) -> Job:
    job = Job(root=root, name="run", experiment=tiny_experiment(folder), log="none")
    return replace(job, **settings)


def ended(process: RunProcess) -> int:
    _wait(lambda: process.poll() is not None)
    code = process.poll()
    assert code is not None
    return code


def _wait(holds: object) -> None:
    deadline = time.monotonic() + _PATIENCE_SECONDS
    while not holds():  # pyright: ignore[reportCallIssue]
        assert time.monotonic() < deadline, "it hangs"
        time.sleep(0.005)


# A script without a guard, which a forked process must not run again.
_PARENT = """
import signal, sys, time
from pathlib import Path
from ablations.runs import forkserver
from ablations.runs.executor import Job, Place
from ablations.runs.forkserver import ForkedProcess
from experiments.records.experiment import load_experiment

directory = Path(sys.argv[1])
job = Job(root=directory.parent, name="run", experiment=load_experiment(directory), log="csv")
with (directory / "mains").open("a") as mains:
    mains.write("one\\n")
for number in (signal.SIGINT, signal.SIGTERM):
    signal.signal(number, signal.SIG_IGN)
print(forkserver.start(directory, job, Place(0)).pid, flush=True)
sys.stdin.readline()
process = ForkedProcess(time.sleep, 0)
while process.poll() is None:
    time.sleep(0.01)
print(process.poll(), flush=True)
time.sleep(1000)
"""


_KILLED_SERVER = """
import os, signal, threading, time
from multiprocessing import forkserver
from ablations.runs import forkserver as warm

warm.PRELOADED.clear()
first = warm.ForkedProcess(time.sleep, 0)
server = forkserver._forkserver._forkserver_pid
os.kill(server, signal.SIGSTOP)
threading.Timer(0.3, os.kill, (server, signal.SIGKILL)).start()
process = warm.ForkedProcess(time.sleep, 0)
while process.poll() is None:
    time.sleep(0.01)
print(process.poll())
"""


def test_a_server_that_is_killed_while_a_process_starts_is_replaced():
    command = [sys.executable, "-c", _KILLED_SERVER]
    done = subprocess.run(
        command, capture_output=True, text=True, check=False, cwd=_ROOT, timeout=60
    )
    assert (done.stdout, done.stderr, done.returncode) == ("0\n", "", 0)


_KILLED_SERVER_LATER = """
import os, signal, time
from multiprocessing import forkserver
from ablations.runs import forkserver as warm

warm.PRELOADED.clear()
process = warm.ForkedProcess(time.sleep, 60)
os.kill(forkserver._forkserver._forkserver_pid, signal.SIGKILL)
while process.poll() is None:
    time.sleep(0.01)
print(process.poll())
"""


def test_a_process_whose_server_is_killed_counts_as_killed():
    command = [sys.executable, "-c", _KILLED_SERVER_LATER]
    done = subprocess.run(
        command, capture_output=True, text=True, check=False, cwd=_ROOT, timeout=60
    )
    assert (done.stdout, done.stderr, done.returncode) == ("-9\n", "", 0)


def test_a_process_whose_directory_is_gone_exits_silently(tmp_path: Path):
    with pytest.raises(SystemExit) as ended:
        run_forked(str(tmp_path / "gone"), str(tmp_path), {}, 1, "none")
    assert ended.value.code == STOPPED_EXIT_CODE


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
    directory, script = tmp_path / "run", tmp_path / "parent.py"
    claim(directory, tiny_experiment(folder, max_steps=100_000, checkpoint_every_steps=50_000))
    script.write_text(_PARENT)
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
    metrics = directory / "metrics.csv"
    _wait(lambda: metrics.exists() and metrics.read_text().count("\n") > 3)
    for number in (signal.SIGINT, signal.SIGTERM):
        os.killpg(parent.pid, number)
    parent.stdin.write("\n")
    parent.stdin.flush()
    assert parent.stdout.readline() == "0\n"  # the fork server is still there
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


def _tell_surroundings(directory: str, folder: str, *rest: object) -> None:
    (Path(directory) / "told.json").write_text(json.dumps([folder, *rest]))


def test_a_process_gets_its_devices_and_the_current_environment(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr("ablations.runs.forkserver._run", _tell_surroundings)
    monkeypatch.setenv("SLURM_PROCID", "3")
    for word in ("first", "second"):
        monkeypatch.setenv("WORD", word)
        monkeypatch.chdir(tmp_path)
        job = job_of(tmp_path, folder, accumulate=11, environment={"MORE": word})
        assert ended(forkserver.start(tmp_path, job, Place(0, (3, 5)))) == 0
        told, environment, accumulate, log = json.loads((tmp_path / "told.json").read_text())
        assert (told, accumulate, log) == (str(tmp_path), 11, "none")
        assert environment["CUDA_VISIBLE_DEVICES"] == "3,5"
        assert environment["WORD"] == environment["MORE"] == word
        assert "SLURM_PROCID" not in environment  # nor is it a rank of this process's job


def test_a_process_leads_a_group_and_its_exit_code_is_known():
    process = ForkedProcess(time.sleep, 100)
    assert os.getpgid(process.pid) == process.pid
    assert process.poll() is None
    os.killpg(process.pid, signal.SIGKILL)
    assert ended(process) == process.poll() == -signal.SIGKILL


def test_a_plain_process_does_the_same_and_stops_when_its_parent_is_gone(
    folder: Path, tmp_path: Path
):
    directory = tmp_path / "run"
    claim(directory, tiny_experiment(folder, max_steps=100_000, checkpoint_every_steps=50_000))
    plain = process.start(directory, job_of(tmp_path, folder), Place(0))
    metrics = directory / "metrics.csv"
    _wait(lambda: plain.poll() is not None or (metrics.exists() and metrics.stat().st_size > 200))
    assert os.getpgid(plain.pid) == plain.pid and plain.stdin is not None
    plain.stdin.close()  # as the operating system does for a parent that is killed
    assert plain.wait(_PATIENCE_SECONDS) == STOPPED_EXIT_CODE
    assert len(step_checkpoints(directory)) == 1


@pytest.mark.slow
def test_a_paused_process_cannot_disturb_the_attempt_that_replaced_it(folder: Path, tmp_path: Path):
    job = job_of(tmp_path, folder, log="wandb")
    experiment = tiny_experiment(folder, max_steps=200, checkpoint_every_steps=25)
    stale, newer = tmp_path / "seed-3.attempt-1", tmp_path / "seed-3.attempt-2"
    claim(stale, experiment)
    write_attempt(stale, replace(ATTEMPT, number=1))
    paused = forkserver.start(stale, job, Place(0))
    _wait(lambda: len(step_checkpoints(stale)) > 0)
    os.killpg(paused.pid, signal.SIGSTOP)
    assert load_result(stale) is None, "it was too fast"
    stale.rename(newer)
    write_attempt(newer, replace(ATTEMPT, number=2))
    assert ended(forkserver.start(newer, job, Place(0))) == 0
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


def test_it_scores_only_the_splits_of_the_experiment(
    folder: Path, command: Command, tmp_path: Path
):
    claim(tmp_path / "run", tiny_experiment(folder, ("valid",), max_steps=2))
    ended = command("ablations.runs.entry", tmp_path / "run", stdin=None)
    assert ended.code == 0, ended
    result = load_result(tmp_path / "run")
    assert result is not None and result.test_bleu is None
    assert not (tmp_path / "run" / "test.hypotheses.txt").exists()


def test_a_signal_before_training_ends_the_run_as_stopped(
    folder: Path, begin: Start, tmp_path: Path
):
    directory = tmp_path / "run"
    claim(directory, tiny_experiment(folder))
    running = begin("ablations.runs.entry", directory, stdin=None)
    running.wait_until(lambda: read_progress(directory) is not None)
    assert running.finish(signal.SIGTERM).code == STOPPED_EXIT_CODE
    progress = read_progress(directory)
    assert progress is not None and progress.stage == "stopped"


@pytest.mark.parametrize("spoil", ["configuration", "data"])
def test_bad_input_is_the_last_line_and_exit_code_two(
    spoil: str, folder: Path, command: Command, tmp_path: Path
):
    directory = tmp_path / "run"
    claim(directory, tiny_experiment(folder, vocab_size=5_000))
    if spoil == "configuration":
        (directory / "config.json").write_text("{}")
    ended = command("ablations.runs.entry", directory, stdin=None)
    assert ended.code == 2, ended
    (line,) = ended.lines
    progress = read_progress(directory)
    assert progress is not None
    assert (progress.stage, progress.message) == ("refused", line)
    assert ("does not fit" if spoil == "configuration" else "more than the text allows") in line


def test_divergence_is_reported_with_its_step(folder: Path, command: Command, tmp_path: Path):
    directory = tmp_path / "run"
    claim(directory, tiny_experiment(folder, learning_rate_factor=1e30))
    ended = command("ablations.runs.entry", directory, stdin=None)
    assert ended.code == 1
    assert ended.lines[-1].startswith("training diverged: the gradient of step ")
    progress = read_progress(directory)
    assert progress is not None
    assert (progress.stage, progress.message) == ("diverged", ended.lines[-1])
