"""Two processes train as one does that accumulates, dropout and all."""

from __future__ import annotations

import csv
import os
import subprocess
import sys
from pathlib import Path

import pytest
from lightning.pytorch.accelerators.mps import MPSAccelerator

from experiments.checkpoints import step_checkpoints
from experiments.results import load_result
from experiments.run import run
from tests.experiments.samples import tiny_experiment


def _losses(directory: Path, column: str) -> list[float]:
    with (directory / "metrics.csv").open(newline="") as file:
        return [float(row[column]) for row in csv.DictReader(file) if row[column]]


def test_two_processes_take_the_steps_of_one(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setenv("WANDB_MODE", "disabled")
    one, two = tmp_path / "one", tmp_path / "two"
    alone = run(tiny_experiment(folder, max_steps=10), one, accumulate=2)
    ended = subprocess.run(
        [sys.executable, "-m", "tests.experiments.train_on_two", folder, two],
        env=os.environ | {"OMP_NUM_THREADS": "1"},
        capture_output=True,
        text=True,
    )
    assert ended.returncode == 0, ended
    assert _losses(two, "loss") == pytest.approx(_losses(one, "loss"), abs=1e-5)
    assert _losses(two, "perplexity") == pytest.approx(_losses(one, "perplexity"), rel=1e-5)
    assert _losses(two, "gradient_norm") == pytest.approx(_losses(one, "gradient_norm"), abs=1e-4)
    together = load_result(two)
    assert together is not None
    assert together.steps == alone.steps
    assert (together.devices, alone.devices) == (2, 1)
    assert together.source_tokens == alone.source_tokens
    assert together.target_tokens == alone.target_tokens
    assert together.perplexity == pytest.approx(alone.perplexity, rel=1e-4)
    assert [step for step, _ in step_checkpoints(two)] == [9, 10]
    assert not [
        line for line in ended.stderr.splitlines() if not line.startswith(("train", "eval"))
    ]


def test_a_gpu_of_apples_is_left_alone(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setenv("WANDB_MODE", "disabled")
    monkeypatch.setattr(MPSAccelerator, "is_available", staticmethod(lambda: True))
    result = run(tiny_experiment(folder, max_steps=3), tmp_path)
    assert result.steps == 3
