"""Speed and memory of the paper's models, of the rows of ``small``, and of decoding."""

from __future__ import annotations

import math
import statistics
from typing import Any

import pytest
import torch

from ablations.tables.scales import SMALL
from ablations.tables.table3 import TABLE
from bench.common import Size, config_of, in_turn, workload
from bench.kernels import profile, profile_training
from bench.train import matrix_product, measure_training, product_flops
from bench.workload import Workload, make_step
from experiments.devices import device_name, nominal_peak, peak_memory
from tests.gpu.test_equality import CPU, LOAD, Record, compare, small_config
from transformer.config import DecodingConfig, override
from transformer.decoding import decode_sentences
from transformer.evaluation.counts import training_flops
from transformer.model.encoder_decoder import Transformer
from transformer.training.module import TransformerModule
from transformer.training.precision import effective_precision

_STEPS = {"tiny": 2, "base": 24, "big": 16}
# A rate above that of a large product would mean that the time was taken before the work was done;
# on a CPU, that other processes had slowed the product.
_LARGEST_SHARE = {"cuda": 1.1, "cpu": math.inf}
# After this, a compiled model is timed on the shapes that it is compiled for by then.
_COMPILING_SECONDS = 75.0


def test_training(timed_size: Size, device: torch.device, record_property: Record) -> None:
    """Steps of 25,000 + 25,000 tokens on a GPU, in turn with a plain loop of ``nn.Transformer``."""
    record_training(timed_size, device, record_property)
    record_all(record_property, profile_training(timed_size, device, 3))


def record_training(size: Size, device: torch.device, record: Record, **options: Any) -> None:
    """Record the benchmark's figures of training, and the share of the maker's peak."""
    figures = measure_training(size, device, _STEPS[size], **options)
    record_all(record, figures)
    precision = "bf16" if figures["precision"] == "bf16" else "fp32"
    if nominal := nominal_peak(device_name(device), precision):
        record("share_of_the_nominal_peak", 1e12 * figures["tflops"] / nominal)
    assert figures["share_of_a_large_product"].median < _LARGEST_SHARE[device.type]


def record_all(record: Record, figures: dict[str, Any]) -> None:
    """Record each figure by its name."""
    for name, value in figures.items():
        record(name, value)


def test_decoding_of_news(size: Size, device: torch.device, record_property: Record) -> None:
    """Beam 4 over as many sentences as newstest2014 has.

    The weights are untrained and never end a sentence, so translations are as long as their
    sources, which is about what a trained model writes.
    """
    config = config_of(size, workload(device))
    torch.manual_seed(1)
    model = Transformer(config.model).to(device)
    count = 3_003 if device.type == "cuda" else 8
    pairs = workload(device).pairs(count)
    sources = [pairs[pair][0].tolist() for pair in range(count)]
    decoding = DecodingConfig(beam_size=4, max_extra_length=0)
    found: list[int] = []

    def decode(_: int) -> None:
        found[:] = [len(tokens) for _, tokens in decode_sentences(model, sources, decoding)]

    (first, *times) = in_turn(range(4), decode, device=device)[0]
    record_property("first_seconds", first)
    record_property("seconds", statistics.median(times))
    record_property("mean_length", statistics.fmean(found))
    record_all(record_property, profile(decode, [0], device))  # one step is the whole search
    assert len(found) == count
    assert statistics.fmean(found) == pytest.approx(statistics.fmean(map(len, sources)), rel=0.1)


@pytest.mark.parametrize("row", TABLE.rows, ids=lambda row: row.name)
def test_a_row_of_small(row: Any, device: torch.device, record_property: Record) -> None:
    """Equality, and hours of a seed without the Trainer's own time.

    The lengths are those of captions in 8,000 word-pieces, somewhat fewer than the scale's 2,000
    make of them.
    """
    config = TABLE.configure(row, SMALL)
    load = Workload(
        text="multi30k",
        vocab_size=config.model.vocab_size,
        tokens_per_batch=config.data.tokens_per_batch,
    )
    batches = load.batches(8 if device.type == "cuda" else 2, device)
    step = make_step(TransformerModule(config).to(device))
    multiply = matrix_product(device, effective_precision(config, device) == "bf16")
    (warm_up, _) = in_turn(batches, step, multiply, device=device)  # each shape once
    memory = peak_memory(device)
    times, product_times = in_turn(3 * batches, step, multiply, device=device)
    flops = sum(training_flops(config.model, b.source_tokens, b.target_tokens) for b in batches)
    share = 3 * flops / sum(times) * statistics.median(product_times) / product_flops(device)
    seconds = statistics.median(times)
    figures = {
        "ms_per_step": 1e3 * seconds,
        "hours": seconds * config.training.max_steps / 3600,
        "target_tokens_per_second": 3 * sum(b.target_tokens for b in batches) / sum(times),
        "share_of_a_large_product": share,
        "peak_memory_mib": memory / 2**20,
        "warm_up_seconds": sum(warm_up),
    }
    figures |= {"busy": profile(step, batches, device)["busy"]}
    record_all(record_property, figures)
    (batch,) = load.batches(1, CPU)
    compare(override(config, dropout=0.0), "fp32", batch, device, record_property)
    assert share < _LARGEST_SHARE[device.type]


def skip_compiling(device: torch.device) -> None:
    """Skip a test on a CPU."""
    if device.type == "cpu":
        pytest.skip("compiling takes minutes on a CPU")


def test_compiled_loss_and_gradient(
    size: Size, device: torch.device, record_property: Record
) -> None:
    skip_compiling(device)
    (batch,) = LOAD.batches(1, CPU)
    compare(small_config(size, dropout=0.0, compile=True), "bf16", batch, device, record_property)


def test_compiled_training(timed_size: Size, device: torch.device, record_property: Record) -> None:
    """The same as uncompiled, and how many graphs were compiled for how many shapes."""
    skip_compiling(device)
    from torch._dynamo.utils import counters  # takes seconds

    torch.compiler.reset()
    counters.clear()
    limit = _COMPILING_SECONDS
    record_training(timed_size, device, record_property, compile=True, warm_up_seconds=limit)
    record_property("graphs", counters["stats"]["unique_graphs"])
    torch.compiler.reset()
