"""The benchmark runs from a plain copy of the tree with only torch and lightning."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import torch

from tests.experiments.conftest import Command

ROOT = Path(__file__).parents[3]
# What else the project needs, except for what Lightning may import itself.
_ABSENT = "babel dacite filelock jinja2 num2words optuna sacrebleu sentencepiece wandb".split()  # noqa: SIM905
_RUN = """
import runpy, sys
class Absent:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in {absent}:
            raise ModuleNotFoundError(name)
sys.meta_path.insert(0, Absent())
import experiments.benchmark.decoding as decoding
decoding._OURS, decoding._PLAIN = {{"cpu": 12}}, {{"cpu": 4}}
sys.argv = ["experiments", *{arguments}]
runpy.run_module("experiments", run_name="__main__")
"""


@pytest.fixture(scope="module")
def copy(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("copy")
    for package in ("transformer", "experiments"):
        ignored = shutil.ignore_patterns("__pycache__")
        shutil.copytree(ROOT / package, folder / package, ignore=ignored)
    return folder


def measured(copy: Path, *options: str) -> tuple[dict[str, Any], str]:
    """The figures that a benchmark with torch and lightning alone writes, and what it prints."""
    arguments = ["benchmark", *options, "--turns", "1", "--output", "out/figures.json"]
    script = _RUN.format(absent=_ABSENT, arguments=arguments)
    environment = {"OMP_NUM_THREADS": "1"} | {k: v for k, v in os.environ.items() if k == "PATH"}
    ended = subprocess.run(
        [sys.executable, "-c", script],
        cwd=copy,
        env=environment | {"HOME": str(copy)},
        capture_output=True,
        text=True,
    )
    assert ended.returncode == 0, ended.stderr
    assert not ended.stderr
    return json.loads((copy / "out" / "figures.json").read_text()), ended.stdout


@pytest.mark.slow
def test_batching_is_measured_from_a_plain_copy(copy: Path):
    figures, printed = measured(copy, "--what", "data")
    assert figures["workload"] == {
        "text": "multi30k",
        "vocab_size": 8_000,
        "tokens_per_batch": 2_000,
        "copies": 1,
    }
    data = figures["data"]
    assert 0.8 < data["fill"] < 1 and 0.3 < data["plain_fill"] < data["fill"]
    assert data["pairs"] == 29_000
    assert figures["commit"] == "unknown" and "torch" in figures["versions"]
    assert "pairs/s" in printed and "fill" in printed


@pytest.mark.slow
def test_everything_is_measured_from_a_plain_copy(copy: Path):
    figures, printed = measured(copy, "--size", "tiny")
    train, decode = figures["train"], figures["decode"]
    per_second = train["target_tokens_per_second"]
    assert per_second > 0 and train["peak_memory_bytes"] > 1e8
    assert train["ratio"]["median"] == pytest.approx(
        per_second / train["plain_target_tokens_per_second"]
    )
    for name, peak in train["peak_tflops"].items():
        assert train["mfu"][name]["median"] == pytest.approx(train["tflops"] / peak)
    assert 20 < decode["mean_length"] <= 25
    (memory, *_) = figures["memory"]
    assert memory["precision"] == "fp32" and memory["peak_bytes"] > 1e8
    assert memory["new_shape_steps"] == 1.0  # there is but one
    for word in ("new shape", "growth", "target tokens/s", "sentences/s", "pairs/s", "fill", "MFU"):
        assert word in printed


@pytest.mark.parametrize(
    ("option", "value", "said"),
    [
        ("--turns", "0", "--turns is 0, but must be at least 1"),
        pytest.param(
            *("--device", "cuda", "torch finds no GPU here; use --device cpu"),
            marks=pytest.mark.skipif(torch.cuda.is_available(), reason="there is a GPU"),
        ),
    ],
)
def test_bad_input_is_one_line(option: str, value: str, said: str, command: Command):
    ended = command("experiments", "benchmark", option, value)
    assert ended.code == 2
    (line,) = ended.lines
    assert said in line
