"""The lengths are those of real text, and the batches those of training."""

from __future__ import annotations

import os
from collections import Counter

import numpy as np
import pytest
import torch

from bench.workload import Workload
from experiments.catalog.find import find_experiment
from transformer.config import EOS_ID
from transformer.data.prepare.prepare import prepare

SMALL = Workload(text="multi30k", vocab_size=50, tokens_per_batch=300)


@pytest.mark.parametrize("text", ["multi30k", "news"])
def test_pairs_are_as_long_as_the_table_says_and_the_same_each_time(text: str) -> None:
    load = Workload(text=text, vocab_size=97, tokens_per_batch=300)
    lengths, pairs = load.lengths(), load.pairs(40)
    assert np.array_equal(pairs.lengths, lengths[:40])
    assert np.array_equal(lengths, load.lengths())
    for pair in range(40):
        for side in pairs[pair]:
            assert side[-1] == EOS_ID
            assert ((side[:-1] > EOS_ID) & (side[:-1] < 97)).all()


def test_batches_are_those_of_training() -> None:
    batches = SMALL.batches(5, torch.device("cpu"))
    assert [batch.number for batch in batches] == list(range(5))
    for batch in batches:
        assert max(batch.source_tokens, batch.target_tokens) == pytest.approx(300, rel=0.15)


@pytest.mark.slow
@pytest.mark.skipif("DATA_MIRROR" not in os.environ, reason="needs a DATA_MIRROR with Multi30k")
def test_the_captions_table_is_multi30ks() -> None:
    config = find_experiment("multi30k", vocab_size=8_000).config
    lengths = prepare(config).store("train").lengths
    table = SMALL.lengths()
    assert Counter(map(tuple, lengths.tolist())) == Counter(map(tuple, table.tolist()))
