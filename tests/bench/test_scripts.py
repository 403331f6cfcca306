"""Each script measures something at a tiny size."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from bench import common, decode, train
from bench.common import SIZES, Figures
from bench.decode import measure_decoding
from bench.driver import measure_driver
from bench.kernels import profile_training
from bench.prepare import measure_preparation
from bench.rows import time_rows
from bench.train import measure_training
from bench.workload import Workload
from tests.ablations.samples import SMALL_TABLE, TINY
from tests.samples import number_pairs
from transformer.config import ModelConfig

SMALL = ModelConfig(num_layers=1, d_model=14, d_ff=22, num_heads=2, d_k=7, d_v=7)
CAPTIONS = Workload(text="multi30k", vocab_size=97, tokens_per_batch=300)
MEASURED: dict[str, Callable[..., Figures]] = {
    "train": measure_training,
    "decode": measure_decoding,
    "kernels": profile_training,
}


def test_each_script_measures_something(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setitem(SIZES, "tiny", SMALL)
    monkeypatch.setattr(train, "workload", lambda _: CAPTIONS)
    monkeypatch.setattr(decode, "_OURS", {"cpu": 12})
    monkeypatch.setattr(decode, "_PLAIN", {"cpu": 4})
    options = ["--device", "cpu", "--size", "tiny", "--turns", "2", "--output"]
    for name, measure in MEASURED.items():
        output = tmp_path / f"{name}.json"
        monkeypatch.setattr(sys, "argv", [name, *options, str(output)])
        common.run(measure, turns=40)
        assert capsys.readouterr().out.startswith(f"{name}, tiny, multi30k, ")
        assert json.loads(output.read_text("utf-8"))[name]
    assert [*time_rows(SMALL_TABLE, TINY, 3)["times_the_base"]] == [
        row.name for row in SMALL_TABLE.rows
    ]
    source, target = zip(*number_pairs(101, seed=5), strict=True)
    assert measure_preparation(source, target, 211, vocab_size=67)["pairs_per_second"] > 0
    measure_driver(runs=1, places=20, seconds=0.0)
    assert capsys.readouterr().out.startswith("20 runs at 20 places in ")
