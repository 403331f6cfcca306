"""A run in a process of its own: its surroundings, its end, and its parent's."""

from __future__ import annotations

import errno
import math
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from ablations.runs import entry, process
from ablations.runs.process import Job, Place, RunProcess
from experiments.records.checksums import check_unchanged
from experiments.records.outputs import step_checkpoints
from experiments.records.progress import STOPPED_EXIT_CODE, read_progress
from experiments.records.result import load_result
from tests.ablations.storm.processes import DriverProcess, parent_of
from tests.experiments.conftest import Start
from tests.experiments.samples import tiny_experiment
from tests.samples import new_run
from transformer.errors import BlockedError, InputError

ROOT = Path(__file__).parents[3]
_PATIENCE_SECONDS = 240.0
LONG = {"max_steps": 100_000, "checkpoint_every_steps": 50_000}


def ended(run: RunProcess) -> int | None:
    wait_for(lambda: run.poll() is not None)
    return run.poll()


def wait_for(holds: Callable[[], bool]) -> None:
    deadline = time.monotonic() + _PATIENCE_SECONDS
    while not holds():
        assert time.monotonic() < deadline, "it hangs"
        time.sleep(0.005)


def trains(directory: Path) -> bool:
    metrics = directory / "metrics.csv"
    return metrics.exists() and metrics.read_text().count("\n") > 3


def claimed(directory: Path, folder: Path, **settings: Any) -> Path:
    new_run(directory, tiny_experiment(folder, ("valid",), **settings))
    return directory


@pytest.mark.slow
def test_a_run_whose_server_is_killed_counts_as_killed_and_the_next_has_another_server(
    folder: Path, tmp_path: Path
):
    directory = claimed(tmp_path / "run", folder, **LONG)
    (other := tmp_path / "other").mkdir()
    job = Job(
        root=tmp_path,
        name="run",
        experiment=tiny_experiment(folder),
        log="none",
        folder=other,
        environment={"DATA_CACHE": str(tmp_path / "cache")},
    )
    run = process.fork(directory, job, Place(0))
    wait_for(lambda: trains(directory))
    assert os.getpgid(run.pid) == run.pid and (tmp_path / "cache").exists()
    assert Path(f"/proc/{run.pid}/cwd").readlink() == other
    os.kill(server := parent_of(run.pid), signal.SIGKILL)
    os.waitid(os.P_PID, server, os.WEXITED | os.WNOWAIT)
    second = process.fork(other, job, Place(0))
    assert parent_of(second.pid) not in (0, os.getpid())
    assert ended(second) == 2  # it has no config.json
    assert ended(run) == run.poll() == -signal.SIGKILL
    wait_for(lambda: not parent_of(run.pid))
    assert len(step_checkpoints(directory)) == 1  # nothing that it has computed is lost


@pytest.mark.slow
def test_threads_that_fork_and_watch_at_once_each_learn_how_their_run_ended(
    folder: Path, tmp_path: Path
):
    def carry_out(number: int) -> int | None:
        (directory := tmp_path / str(number)).mkdir()  # without a config.json
        job = Job(root=tmp_path, name=directory.name, experiment=tiny_experiment(folder))
        run = process.fork(directory, job, Place(0))
        while (code := run.poll()) is None:
            pass  # looks at the run while other threads' starts do
        return code

    with ThreadPoolExecutor(max_workers=8) as threads:
        assert {*threads.map(carry_out, range(16))} == {2}


_PARENT = """
import signal, sys, time
from pathlib import Path
from ablations.runs import process
from ablations.runs.process import Job, Place
from experiments.records.experiment import load_experiment

directory = Path(sys.argv[1])
job = Job(root=directory.parent, name="run", experiment=load_experiment(directory), log="none")
for number in (signal.SIGINT, signal.SIGTERM):
    signal.signal(number, lambda *_: print("heard", flush=True))
first = process.fork(directory, job, Place(0))
while not (directory.parent / "go").exists():
    time.sleep(0.01)
second = process.fork(directory.parent, job, Place(0))  # which is no run's directory
while second.poll() is None:
    time.sleep(0.01)
print(second.poll(), flush=True)
time.sleep(1000)
"""


@pytest.mark.slow
def test_signals_to_the_terminals_group_reach_the_parent_alone_and_nothing_outlives_it(
    folder: Path, tmp_path: Path
):
    directory = claimed(tmp_path / "run", folder, **LONG)
    environment = {**os.environ, "WANDB_MODE": "disabled", "PYTHONPATH": str(ROOT)}
    parent = DriverProcess([sys.executable, "-c", _PARENT, str(directory)], environment, tmp_path)
    wait_for(lambda: trains(directory))
    for number in (signal.SIGINT, signal.SIGTERM):
        os.killpg(parent.process.pid, number)
    (tmp_path / "go").touch()
    wait_for(lambda: parent.log.read_text() == "heard\nheard\n2\n")  # the server is still there
    assert len(parent.runs) == 1
    parent.process.kill()
    parent.process.wait()
    wait_for(lambda: not parent.descendants)
    assert len(step_checkpoints(directory)) == 1
    assert "the same command continues there" in (directory / "log.txt").read_text()


def replace_module(path: Path, content: str) -> None:
    """Leave a module that a run of this folder imports in place of its own."""
    path.parent.mkdir(parents=True)
    for package in (path.parent.parent, path.parent):
        (package / "__init__.py").touch()  # or one on PYTHONPATH would come first
    path.write_text(content)


_STAND_IN = """
import os, sys
print(os.getpgrp() == os.getpid(), os.environ["CUDA_VISIBLE_DEVICES"], os.environ["MORE"],
      os.environ["TORCH_ELASTIC_SHUTDOWN_TIMEOUT"],
      *{"SLURM_PROCID", "WANDB_SWEEP_ID"} & {*os.environ}, *sys.argv[2:], flush=True)
print("end" + sys.stdin.read())
"""


def test_a_plain_process_knows_its_devices_but_no_rank_and_when_its_parent_is_gone(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setenv("SLURM_PROCID", "3")
    monkeypatch.setenv("WANDB_SWEEP_ID", "abc")
    process.forget_rank()
    replace_module(tmp_path / "ablations" / "runs" / "entry.py", _STAND_IN)
    job = Job(
        root=tmp_path,
        name="run",
        experiment=tiny_experiment(folder),
        log="tensorboard",
        folder=tmp_path,
        environment={"MORE": "word"},
    )
    plain, log = process.start(tmp_path, job, Place(0, (3, 5))), tmp_path / "log.txt"
    wait_for(lambda: log.read_text() == "True 3,5 word 60 1 tensorboard 1 weights\n")
    assert plain.stdin is not None
    plain.stdin.close()  # as the operating system does for a parent that is killed
    assert plain.wait(_PATIENCE_SECONDS) == 0 and log.read_text().endswith("\nend\n")


def test_a_run_that_cannot_be_forked_is_started_as_a_plain_process(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def lose_server(_process: object) -> None:
        raise EOFError

    monkeypatch.setattr("multiprocessing.context.ForkServerProcess.start", lose_server)
    replace_module(tmp_path / "ablations" / "runs" / "entry.py", "print('plain')")
    job = Job(root=tmp_path, name="run", experiment=tiny_experiment(folder), folder=tmp_path)
    run = process.fork(tmp_path, job, Place(0))
    assert isinstance(run, subprocess.Popen)
    with run:
        assert ended(run) == 0
    assert (tmp_path / "log.txt").read_text() == "plain\n"


def test_a_run_on_several_devices_is_started_by_torchs_launcher(
    folder: Path, tmp_path: Path
) -> None:
    launcher = tmp_path / "torch" / "distributed" / "run.py"
    replace_module(launcher, "import sys\nprint(*sys.argv[1:], flush=True)")
    experiment = tiny_experiment(folder)
    job = Job(root=tmp_path, name="run", experiment=experiment, log="tensorboard", folder=tmp_path)
    run = process.fork(tmp_path, job, Place(0, (3, 5), ranks=2))
    assert isinstance(run, subprocess.Popen)  # and no fork of one process
    with run:
        assert ended(run) == 0
    assert (tmp_path / "log.txt").read_text() == (
        f"--standalone --nproc-per-node 2 -m ablations.runs.entry {tmp_path} 1 tensorboard 1 "
        "weights\n"
    )


@pytest.mark.slow  # as one that is forked does, among the signals above
def test_a_run_stops_after_a_checkpoint_when_its_parent_is_gone(
    folder: Path, begin: Start, tmp_path: Path
):
    directory = claimed(tmp_path / "run", folder, **LONG)
    running = begin("ablations.runs.entry", directory, "1", "none", "1", "whole", stdin=None)
    running.wait_until(lambda: trains(directory))
    running.close_stdin()
    assert running.finish().code == STOPPED_EXIT_CODE
    assert len(step_checkpoints(directory)) == 1


@pytest.mark.slow
def test_a_signal_before_training_ends_the_run_as_stopped(
    folder: Path, begin: Start, tmp_path: Path
):
    directory = claimed(tmp_path / "run", folder)
    running = begin("ablations.runs.entry", directory, "1", "none", "1", "whole", stdin=None)
    running.wait_until(lambda: read_progress(directory) is not None)
    assert running.finish(signal.SIGTERM).code == STOPPED_EXIT_CODE
    progress = read_progress(directory)
    assert progress is not None and progress.stage == "stopped"


@pytest.mark.parametrize(
    ("code", "state"),
    [(STOPPED_EXIT_CODE, "stopped"), (143, "stopped"), (3, "failed"), ("", "failed")],
)
def test_a_model_that_exits_has_failed_and_a_signal_has_stopped_it(
    code: object, state: str, folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    def leave(*_args: Any, **_settings: Any) -> None:
        raise SystemExit(code)

    monkeypatch.setattr("experiments.run.run", leave)
    directory = claimed(tmp_path / "run", folder)
    assert entry._carry_out(directory, log="none").state == state


@pytest.mark.parametrize(
    ("error", "state", "message"),
    [
        (KeyboardInterrupt(), "failed", "KeyboardInterrupt"),
        (GeneratorExit("the end"), "failed", "GeneratorExit: the end"),
        (InputError("no such size"), "refused", "no such size"),
        (BlockedError("no such text"), "blocked", "no such text"),
        (OSError(errno.ENOSPC, "full"), "blocked", "[Errno 28] full"),
    ],
)
def test_whatever_the_models_code_raises_ends_a_run_with_a_line(
    error: BaseException,
    state: str,
    message: str,
    folder: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
):
    def fail(*_args: Any, **_settings: Any) -> None:
        raise error

    monkeypatch.setattr(entry, "execute", fail)
    outcome = entry._carry_out(claimed(tmp_path / "run", folder), log="none")
    assert (outcome.state, outcome.message) == (state, message)
    assert ("Traceback" in capsys.readouterr().err) == (state == "failed")


@pytest.mark.slow
@pytest.mark.parametrize(
    ("settings", "code", "stage", "message"),
    [
        ({"max_steps": 2}, 0, "done", ""),
        ({"vocab_size": 5_000}, 2, "refused", "more than the text allows"),
        ({"learning_rate_factor": 1e30}, 1, "diverged", "training diverged: the gradient of step "),
    ],
)
def test_how_a_run_ends_is_its_exit_code_its_last_line_and_its_progress(
    settings: dict[str, Any],
    code: int,
    stage: str,
    message: str,
    folder: Path,
    begin: Start,
    tmp_path: Path,
):
    directory = claimed(tmp_path / "run", folder, **settings)
    ended = begin("ablations.runs.entry", directory, "1", "none", "1", "whole", stdin=None).finish()
    assert ended.code == code, ended
    progress, result = read_progress(directory), load_result(directory)
    assert progress is not None and progress.stage == stage
    assert message in progress.message and progress.message in ended.stderr
    assert (result is None) == (stage == "refused")
    if result is None:
        return
    assert result.test_bleu is None  # only the splits of the experiment
    assert result.unigram_perplexity is not None and result.unigram_perplexity > 2
    at_step = re.search(r"the gradient of step (\d+) ", message + progress.message)
    assert result.diverged_at == (int(at_step[1]) if at_step else None)
    assert result.has_diverged or stage == "done"
    assert math.isinf(result.perplexity) == (stage == "diverged")
    if stage == "diverged":  # the same command says so again, and trains nothing
        again = begin(
            "ablations.runs.entry", directory, "1", "none", "1", "whole", stdin=None
        ).finish()
        assert again.code == code and f"ended at step {result.diverged_at}" in again.stderr
        assert load_result(directory) == result
        check_unchanged(directory)
