"""Each script at a tiny size: what it measures holds together, on sentences like real ones."""

from __future__ import annotations

import dataclasses
import json
import os
import sys
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from bench import common, decode, train
from bench.common import SIZES, config_of, ratio_of, workload
from bench.decode import measure_decoding
from bench.driver import measure_driver
from bench.kernels import profile_training
from bench.plain import PlainTransformer, plain_beam_search
from bench.prepare import measure_preparation
from bench.rows import time_rows
from bench.train import measure_training
from bench.workload import Workload
from experiments.catalog.find import find_experiment
from tests.ablations.samples import SMALL_TABLE, TINY
from tests.samples import number_pairs, random_sentences
from transformer.config import BOS_ID, EOS_ID, ModelConfig
from transformer.data.prepare.prepare import prepare
from transformer.evaluation.counts import count_parameters

CPU = torch.device("cpu")
SMALL = ModelConfig(num_layers=1, d_model=14, d_ff=22, num_heads=2, d_k=7, d_v=7)
CAPTIONS = Workload(text="multi30k", vocab_size=97, tokens_per_batch=300)


@pytest.fixture(autouse=True)
def _small(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(SIZES, "tiny", SMALL)
    monkeypatch.setattr(train, "workload", lambda _: CAPTIONS)


def test_training() -> None:
    found = measure_training("tiny", CPU, 3)
    per_second, plain = found["target_tokens_per_second"], found["plain_target_tokens_per_second"]
    assert found["ratio"].low <= per_second / plain <= found["ratio"].high
    assert 0.8 < found["fill_of_the_batches"] < 1 and found["peak_memory_mib"] > 100
    assert (found["steps"], found["shapes"]) == (3, 3)


def test_decoding(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(decode, "_OURS", {"cpu": 12})
    monkeypatch.setattr(decode, "_PLAIN", {"cpu": 4})
    found = measure_decoding("tiny", CPU, 1)
    per_second, plain = found["sentences_per_second"], found["plain_sentences_per_second"]
    assert found["ratio"].median == pytest.approx(per_second / plain)
    assert 20 < found["mean_length"] <= 25


def test_kernels() -> None:
    found = profile_training("tiny", CPU, 1)
    times = found["ms_by_operation"]
    assert "aten::mm" in times
    assert sorted(times.values(), reverse=True) == list(times.values())
    assert found["busy"] > 0.2


def test_rows() -> None:
    found = time_rows(SMALL_TABLE, TINY, 3)
    assert [*found["times_the_base"]] == [row.name for row in SMALL_TABLE.rows]
    base = found["times_the_base"]["base"]
    assert base.low < base.high and 0.2 < base.median < 5 and found["device"].endswith("1 thread")


def test_preparation() -> None:
    source, target = zip(*number_pairs(101, seed=5), strict=True)
    found = measure_preparation(source, target, 211, vocab_size=67)
    assert found["pairs"] == 211 and found["pairs_per_second"] > 0


def test_fewer_runs_than_rows_are_a_seed_of_each(capsys: pytest.CaptureFixture[str]) -> None:
    measure_driver(runs=1, places=20, seconds=0.0)
    assert capsys.readouterr().out.startswith("20 runs at 20 places in ")


def test_a_script_prints_its_figures_and_writes_them(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    output = tmp_path / "new" / "found.json"
    monkeypatch.setattr(sys, "argv", ["train", "--turns", "3", "--output", str(output)])
    figures = {"tflops": 0.1234, "pairs": 29_000, "ratio": ratio_of([3.0], [2.0])}
    common.run(lambda _size, _device, turns: figures | {"steps": turns}, turns=40)
    printed = capsys.readouterr().out.splitlines()
    assert printed[0].startswith("train, tiny, ")
    assert [line.split()[1:] for line in printed[1:]] == [
        ["0.123"], ["29,000"], ["1.50", "(1.50", "to", "1.50)"], ["3"],
    ]  # fmt: skip
    found: dict[str, Any] = json.loads(output.read_text("utf-8"))
    assert found["train"]["ratio"]["median"] == 1.5
    assert {"size", "device", "workload", "commit", "versions"} <= found.keys()


def test_no_turns_are_refused(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(sys, "argv", ["train", "--turns", "0"])
    with pytest.raises(SystemExit, match="2"):
        common.run(lambda *_: {}, turns=40)
    assert capsys.readouterr().err.endswith("error: --turns is 0, but must be at least 1\n")


def test_a_ratio_is_the_median_over_the_turns() -> None:
    ratio = ratio_of([2.0, 40.0, 9.0, 5.0], [1.0, 10.0, 3.0, 1.0])
    assert ratio.median == 3.5 and ratio.low < 3 < 4 < ratio.high


def test_a_gpu_gets_the_papers_model_and_full_batches() -> None:
    load = workload(torch.device("cuda"))
    assert config_of("base", load).model == ModelConfig()
    batches = load.batches(40, CPU)
    real = sum(batch.source_tokens + batch.target_tokens for batch in batches)
    assert real / len(batches) == pytest.approx(2 * 25_000, rel=0.1)
    assert real / sum(batch.src.numel() + batch.tgt[:, 1:].numel() for batch in batches) > 0.88


@pytest.mark.parametrize("text", ["multi30k", "news"])
def test_pairs_are_as_long_as_the_table_says_and_the_same_each_time(text: str) -> None:
    load = dataclasses.replace(CAPTIONS, text=text)
    lengths, pairs = load.lengths(), load.pairs(40)
    assert np.array_equal(pairs.lengths, lengths[:40])
    assert np.array_equal(lengths, load.lengths())
    for pair in range(40):
        for side in pairs[pair]:
            assert side[-1] == EOS_ID
            assert ((side[:-1] > EOS_ID) & (side[:-1] < 97)).all()


def test_batches_are_those_of_training() -> None:
    batches = CAPTIONS.batches(5, CPU)
    assert [batch.number for batch in batches] == list(range(5))
    for batch in batches:
        assert max(batch.source_tokens, batch.target_tokens) == pytest.approx(300, rel=0.15)


@pytest.mark.slow
@pytest.mark.skipif("DATA_MIRROR" not in os.environ, reason="needs a DATA_MIRROR with Multi30k")
def test_the_captions_table_is_multi30ks() -> None:
    config = find_experiment("multi30k", vocab_size=8_000).config
    lengths = prepare(config).store("train").lengths
    table = CAPTIONS.lengths()
    assert Counter(map(tuple, lengths.tolist())) == Counter(map(tuple, table.tolist()))


# The model of torch's own parts that ours is compared with.
PLAIN = dataclasses.replace(SMALL, vocab_size=61, num_layers=2, dropout=0.0)


def test_it_has_as_many_parameters_and_some_biases() -> None:
    plain = PlainTransformer(PLAIN)
    own = [p for name, p in plain.named_parameters() if "attn" in name]
    biases = sum(p.numel() for p in own if p.dim() == 1)
    last_norms = 2 * 2 * PLAIN.d_model
    parameters = sum(p.numel() for p in plain.parameters())
    assert parameters == count_parameters(PLAIN) + biases + last_norms


def test_a_beam_of_one_takes_the_likeliest_word_each_time() -> None:
    torch.manual_seed(3)
    model = PlainTransformer(PLAIN).eval()
    src = random_sentences([5, 9, 3])
    found = plain_beam_search(model, src, beam_size=1, length=7)
    for row, hypothesis in enumerate(found):
        tokens = [BOS_ID]
        source = src[row][src[row].ne(0)][None]
        with torch.no_grad():
            while len(tokens) <= 7 and tokens[-1] != EOS_ID:
                tokens.append(int(model(source, torch.tensor([tokens]))[0, -1].argmax()))
        assert hypothesis == [token for token in tokens[1:] if token != EOS_ID]
