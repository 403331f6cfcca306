"""Each script measures something at a tiny size."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Callable
from functools import partial
from pathlib import Path

import pytest
import torch

from ablations.tables.step_times import load_step_times
from bench import common, decode, end_in_one_line, rows, train
from bench.common import SIZES, Numbers
from bench.decode import measure_decoding
from bench.driver import measure_driver
from bench.kernels import profile_training
from bench.mps import CONTROL, mps
from bench.prepare import measure_preparation
from bench.rows import time_rows
from bench.train import Race, measure_training
from bench.workload import Step, Way, Workload, make_step_of
from tests.ablations.samples import SMALL_TABLE, TINY
from tests.samples import number_pairs
from transformer.config import ModelConfig

SMALL = ModelConfig(num_layers=1, d_model=14, d_ff=22, num_heads=2, d_k=7, d_v=7)
CAPTIONS = Workload(text="multi30k", vocab_size=97, tokens_per_batch=300)
MEASURED: dict[str, Callable[..., Numbers]] = {
    "train": measure_training,
    "decode": measure_decoding,
    "kernels": profile_training,
}


def test_bad_input_of_a_script_is_one_line(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    for words, said in (
        (["nosuch", "--scale", "small"], "error: "),
        (["table3", "--scale", "small", "--turns", "0"], "error: --turns is 0, but must be at"),
    ):
        monkeypatch.setattr(sys, "argv", ["rows", *words])
        with pytest.raises(SystemExit) as ended:
            end_in_one_line(rows.main)
        found = capsys.readouterr().err
        assert ended.value.code == 2 and found.startswith(said) and found.count("\n") == 1


@pytest.mark.slow
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
    times = time_rows(SMALL_TABLE, TINY, 3)
    assert [*times.ratios] == [row.name for row in SMALL_TABLE.rows]
    times.step_times(3).save(tmp_path)
    found = load_step_times(tmp_path)
    assert found and found.ratios == {row: each.median for row, each in times.ratios.items()}
    source, target = zip(*number_pairs(101, seed=5), strict=True)
    assert measure_preparation(source, target, 211, vocab_size=67)["pairs_per_second"] > 0
    measure_driver(runs=1, places=20, seconds=0.0)
    assert capsys.readouterr().out.startswith("20 runs at 20 places in ")


def test_of_several_ways_one_that_fails_leaves_the_others(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(SIZES, "tiny", SMALL)
    monkeypatch.setattr(train, "workload", lambda _: CAPTIONS)
    race = Race("tiny", torch.device("cpu"), 2)

    def fail() -> Step:
        raise ValueError("no such kernel\nat all")

    race.enter("mine", fail)
    ways: tuple[Way, ...] = ("plain", "captured", "packed, not compiled")
    for way in ways:
        race.enter(way, partial(make_step_of, race.config, way, torch.device("cpu")))
    race.enter_rival(compile=False)
    figures = race.run()
    assert figures["failed"] == {"mine": "ValueError: no such kernel"}
    assert [*figures["ms_per_step"]] == [
        "plain", "captured", "packed, not compiled", "nn.Transformer"
    ]  # fmt: skip
    ratios = figures["times_as_fast_as_nn.Transformer"]
    assert ratios["nn.Transformer"].median == 1.0


def test_mps_runs_while_it_is_needed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    log = tmp_path / "log"
    control = tmp_path / CONTROL
    control.write_text(f'#!/bin/sh\necho "$* $CUDA_MPS_PIPE_DIRECTORY $(cat)" >> {log}\n', "utf-8")
    control.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:/bin:/usr/bin")
    with mps() as environment:
        folder = environment["CUDA_MPS_PIPE_DIRECTORY"]
        assert Path(folder).is_dir()
    assert [line.split() for line in log.read_text("utf-8").splitlines()] == [
        ["-d", folder], [folder, "quit"]
    ]  # fmt: skip
    monkeypatch.setenv("PATH", "/nowhere")
    with mps() as environment:
        assert environment == os.environ
