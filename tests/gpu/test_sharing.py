"""Many small runs on one device at once."""

from __future__ import annotations

import importlib
import os
import subprocess
import sys
import time
from pathlib import Path

import pytest
import torch

from bench.mps import is_there, mps
from tests.gpu.test_equality import Record
from tests.samples import write_corpus

_ROWS = {"cuda": "base,A-h1,A-h4,A-h16,B-dk16,C-N4,C-ff4096,D-p0.0,D-ls0.0,E", "cpu": "base,E"}
_STEPS = {"cuda": 1_000, "cpu": 20}
_TABLE = """
from dataclasses import replace

from ablations.tables import scale
from ablations.tables.table3 import TABLE as TABLE3
from transformer import folder_corpus

SCALE = scale(
    "shared",
    corpus=folder_corpus("text"),
    divide_widths=8,
    divide_layers=2,
    max_steps={steps},
    vocab_size=60,
    tokens_per_batch=1_000,
    warmup_steps=500,
    checkpoint_every_steps=500,
    validate_every_steps=500,
    precision="fp32",
)
TABLE = replace(TABLE3, name="shared", scales=(SCALE,))
"""


@pytest.mark.seconds(240)
def test_runs_that_share_a_gpu(
    device: torch.device, tmp_path: Path, record_property: Record
) -> None:
    """Rows as wide as those of ``small``, trained and scored, with and without NVIDIA's MPS."""
    try:
        for module in ("ablations.cli", "ablations.run", "experiments.run"):
            importlib.import_module(module)
    except ModuleNotFoundError as error:
        pytest.skip(f"not here: {error.name or error}")
    if device.type == "cuda" and not is_there():
        pytest.skip("not here: NVIDIA's MPS")
    write_corpus(tmp_path / "text", train=2_000, longest=30)
    (tmp_path / "shared.py").write_text(_TABLE.format(steps=_STEPS[device.type]), "utf-8")
    seconds: dict[str, float] = {}
    for name in ("with_mps", "without_mps") if device.type == "cuda" else ("without_mps",):
        began = time.monotonic()
        if name == "with_mps":
            with mps() as environment:
                _run(device, tmp_path, name, environment)
        else:
            _run(device, tmp_path, name, dict(os.environ))
        seconds[name] = time.monotonic() - began
        finished = [*tmp_path.glob(f"{name}/*/seed-1*/result.json")]
        assert len(finished) == len(_ROWS[device.type].split(","))
    record_property("seconds", seconds)


def _run(device: torch.device, folder: Path, directory: str, environment: dict[str, str]) -> None:
    words = ["run", "shared.py", "--scale", "shared", "--rows", _ROWS[device.type]]
    words += ["--seeds", "1", "--directory", directory, "--log", "none", "--precision", "fp32"]
    count = str(len(_ROWS[device.type].split(",")))
    words += ["--trials-per-device" if device.type == "cuda" else "--workers", count]
    path = f"{Path(__file__).parents[2]}{os.pathsep}{environment.get('PYTHONPATH', '')}"
    done = subprocess.run(
        [sys.executable, "-m", "ablations", *words],
        cwd=folder,
        env={**environment, "PYTHONPATH": path},
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stdout[-4_000:] + done.stderr[-4_000:]
