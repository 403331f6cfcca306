"""The formula of a step's memory against what torch's allocator really hands out."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch.profiler import ProfilerActivity, profile

from ablations.costs.memory import Hardware, training_bytes
from ablations.tables.table3 import BASE
from experiments.benchmark.training import our_step
from tests.samples import random_sentences, tiny
from transformer.config import Config, Corpus
from transformer.data.batches import Batch

CPU, GPU = Hardware(gpu=False, half=False), Hardware(gpu=True, half=True)


def measured(config: Config) -> int:
    """The most bytes that were in use at once in two steps, the making of the model included."""
    lengths = [27 + sentence % 7 for sentence in range(config.data.tokens_per_batch // 30)]
    src = random_sentences(lengths, config.model.vocab_size)
    tgt = random_sentences([length + 1 for length in lengths], config.model.vocab_size)
    batch = Batch(src=src, tgt=tgt, source_tokens=sum(lengths), target_tokens=sum(lengths))
    with profile(activities=[ProfilerActivity.CPU], profile_memory=True) as seen:
        step = our_step(config, torch.device("cpu"))
        for _ in range(2):
            step(batch)
    assert seen.profiler is not None and seen.profiler.kineto_results is not None
    recorded: list[Any] = seen.profiler.kineto_results.events()
    events = [event for event in recorded if event.name() == "[memory]"]
    now = peak = 0
    for event in sorted(events, key=lambda event: event.start_ns()):
        now += event.nbytes()
        peak = max(peak, now)
    return peak


@pytest.mark.parametrize(
    ("tokens", "changes"),
    [
        pytest.param(1_009, {}, id="activations"),
        pytest.param(1_009, {"dropout": 0.0}, id="no-masks"),
        pytest.param(509, {"num_layers": 1, "d_ff": 2_053}, id="wide-feed-forward"),
        pytest.param(509, {"num_layers": 1, "num_heads": 5, "d_k": 71, "d_v": 73}, id="wide-heads"),
        pytest.param(307, {"num_layers": 1, "vocab_size": 20_011}, id="vocabulary"),
    ],
)
def test_the_formula_is_within_a_fifth(
    files_corpus: Corpus, tokens: int, changes: dict[str, object]
) -> None:
    sizes: dict[str, object] = {"vocab_size": 509, "num_layers": 2, "d_model": 118, "d_ff": 463}
    heads = {"num_heads": 7, "d_k": 17, "d_v": 19, "dropout": 0.1}
    config = tiny(files_corpus, **{**sizes, **heads, "tokens_per_batch": tokens, **changes})
    assert training_bytes(config, CPU) == pytest.approx(measured(config), rel=0.2)


def test_devices_share_a_batch_but_not_the_weights() -> None:
    one, eight = (training_bytes(BASE, GPU, devices) for devices in (1, 8))
    weights = 63_000_000 * 16
    assert weights < eight < one / 2


def test_bf16_on_a_gpu_needs_less_than_fp32_on_a_cpu() -> None:
    assert training_bytes(BASE, GPU) < 0.8 * training_bytes(BASE, CPU)
