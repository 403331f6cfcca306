"""A run in a process of its own: its surroundings, its end, and its parent's."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from experiments.checkpoints import step_checkpoints
from experiments.experiment import claim
from experiments.process import STOPPED
from experiments.progress import read_progress
from experiments.results import load_result
from tests.experiments.conftest import Command, Start
from tests.experiments.samples import tiny_experiment

_PATIENCE_SECONDS = 240.0


def _wait(holds: object) -> None:
    deadline = time.monotonic() + _PATIENCE_SECONDS
    while not holds():  # pyright: ignore[reportCallIssue]
        assert time.monotonic() < deadline, "it hangs"
        time.sleep(0.02)


def test_a_run_stops_with_a_checkpoint_when_its_parent_is_killed(folder: Path, tmp_path: Path):
    directory = tmp_path / "run"
    claim(directory, tiny_experiment(folder, max_steps=100_000, checkpoint_every_steps=50_000))
    parent = subprocess.Popen(
        [
            sys.executable,
            "-c",
            "import sys, time; from pathlib import Path; from experiments.process import start\n"
            "print(start(Path(sys.argv[1]), threads=1).pid, flush=True); time.sleep(1000)",
            directory,
        ],
        stdout=subprocess.PIPE,
        env=os.environ | {"WANDB_MODE": "disabled"},
        text=True,
    )
    assert parent.stdout is not None
    child = int(parent.stdout.readline())
    metrics = directory / "metrics.csv"
    _wait(lambda: metrics.exists() and metrics.read_text().count("\n") > 3)
    parent.kill()
    parent.wait()
    parent.stdout.close()
    _wait(lambda: not Path(f"/proc/{child}").exists() or _is_zombie(child))
    assert len(step_checkpoints(directory)) == 1
    assert "the same command goes on there" in (directory / "log.txt").read_text()


def _is_zombie(pid: int) -> bool:
    return Path(f"/proc/{pid}/stat").read_text().rpartition(") ")[2].startswith("Z")


def test_it_scores_the_validation_set_alone(folder: Path, command: Command, tmp_path: Path):
    claim(tmp_path / "run", tiny_experiment(folder, max_steps=2))
    ended = command("experiments.process", tmp_path / "run", stdin=None)
    assert ended.code == 0, ended
    result = load_result(tmp_path / "run")
    assert result is not None and result.test_bleu is None
    assert not (tmp_path / "run" / "test.hypotheses.txt").exists()


def test_a_signal_before_training_ends_it_as_one_that_is_to_be_started_again(
    folder: Path, begin: Start, tmp_path: Path
):
    directory = tmp_path / "run"
    claim(directory, tiny_experiment(folder))
    running = begin("experiments.process", directory, stdin=None)
    running.wait_until(lambda: read_progress(directory) is not None)
    assert running.finish(signal.SIGTERM).code == STOPPED


@pytest.mark.parametrize("spoil", ["configuration", "data"])
def test_bad_input_is_the_last_line_and_exit_code_two(
    spoil: str, folder: Path, command: Command, tmp_path: Path
):
    directory = tmp_path / "run"
    claim(directory, tiny_experiment(folder, vocab_size=5_000))
    if spoil == "configuration":
        (directory / "config.json").write_text("{}")
    ended = command("experiments.process", directory, stdin=None)
    assert ended.code == 2, ended
    (line,) = ended.lines
    assert ("does not fit" if spoil == "configuration" else "more than the text allows") in line


def test_training_that_diverges_is_told_by_its_step(folder: Path, command: Command, tmp_path: Path):
    directory = tmp_path / "run"
    claim(directory, tiny_experiment(folder, learning_rate_factor=1e30))
    ended = command("experiments.process", directory, stdin=None)
    assert ended.code == 1
    assert ended.lines[-1].startswith("training diverged: the gradient of step ")
    progress = read_progress(directory)
    assert progress is not None and progress.stage == "failed"
