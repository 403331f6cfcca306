"""GPUs and the share of their peak that training reaches; the memory and disk that a run needs."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import torch
from torch.profiler import ProfilerActivity, profile

from ablations.costs.devices import Device, checkpoint_bytes, find_gpu, training_bytes
from ablations.tables.table3 import BASE
from experiments.benchmark.training import our_step
from experiments.run.devices import nominal_peak
from tests.samples import random_sentences, tiny
from transformer.config import Config, Corpus
from transformer.data.batches import Batch
from transformer.errors import InputError
from transformer.training.module import TransformerModule

CPU = Device(name="CPU", gpu=False, bf16=False)
GPU = Device(name="GPU", gpu=True, bf16=True)


def test_the_share_of_the_peak_is_assumed_to_be_the_papers(tmp_path: Path) -> None:
    gpu = find_gpu("h100", "auto", tmp_path)
    assert (gpu.name, gpu.peak, gpu.bf16) == ("H100", 989e12, True)
    # paper.md: 9.5e17 FLOPs of work where 12 hours of 8 P100 are 3.28e18 at their peak.
    assert gpu.share == pytest.approx(9.5e17 / 3.28e18, rel=0.01)
    assert gpu.source.startswith("assumed")


def test_a_measured_share_is_preferred(tmp_path: Path) -> None:
    found = {
        "size": "base",
        "device": "NVIDIA H200",
        "train": {"tflops": 197.8, "precision": "bf16"},
    }
    (tmp_path / "benchmark-base-gpu.json").write_text(json.dumps(found))
    gpu = find_gpu("H200", "auto", tmp_path)
    assert gpu.share == pytest.approx(0.2)
    assert gpu.source == "measured, see experiments/results/benchmark-base-gpu.json"
    assert find_gpu("H100", "auto", tmp_path).source.startswith("assumed")


def test_fp32_by_choice_or_for_lack_of_bf16(tmp_path: Path) -> None:
    assert find_gpu("P100", "auto", tmp_path).peak == nominal_peak("P100-SXM2-16GB", "fp32")
    assert find_gpu("H100", "fp32", tmp_path).peak == 67e12


@pytest.mark.parametrize(
    ("name", "precision", "message"),
    [
        ("H10", "auto", "unknown device 'H10': did you mean 'H100'?"),
        ("P100", "bf16", "P100 has no nominal peak in bf16, which these runs use"),
    ],
)
def test_a_device_that_cannot_be_used(
    tmp_path: Path, name: str, precision: str, message: str
) -> None:
    with pytest.raises(InputError) as caught:
        find_gpu(name, precision, tmp_path)  # pyright: ignore[reportArgumentType]
    assert str(caught.value) == message


def measured(config: Config) -> int:
    """The peak of allocated bytes while the model is made and trained for two steps."""
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
def test_the_memory_formula_is_within_a_fifth_of_torchs_allocator(
    files_corpus: Corpus, tokens: int, changes: dict[str, object]
) -> None:
    sizes: dict[str, object] = {"vocab_size": 509, "num_layers": 2, "d_model": 118, "d_ff": 463}
    heads = {"num_heads": 7, "d_k": 17, "d_v": 19, "dropout": 0.1}
    config = tiny(files_corpus, **{**sizes, **heads, "tokens_per_batch": tokens, **changes})
    assert training_bytes(config, CPU) == pytest.approx(measured(config), rel=0.2)


def test_ranks_share_a_batch_but_not_the_weights() -> None:
    one, eight = (training_bytes(BASE, GPU, devices) for devices in (1, 8))
    weights = 63_000_000 * 16
    assert weights < eight < one / 2


def test_bf16_on_a_gpu_needs_less_than_fp32_on_a_cpu() -> None:
    assert training_bytes(BASE, GPU) < 0.8 * training_bytes(BASE, CPU)


def test_a_checkpoint_is_the_weights_and_both_moments(tmp_path: Path, files_corpus: Corpus) -> None:
    config = tiny(files_corpus, vocab_size=4_096, d_model=64)
    module = TransformerModule(config)
    optimizer = module.configure_optimizers()["optimizer"]
    for parameter in module.parameters():
        parameter.grad = torch.zeros_like(parameter)
    optimizer.step()
    sizes: list[int] = []
    for content in ([module.state_dict(), optimizer.state_dict()], module.state_dict()):
        path = tmp_path / "checkpoint"
        torch.save(content, path)
        sizes.append(path.stat().st_size)
    whole, weights = sizes
    assert abs(checkpoint_bytes(config) / (2 * whole + weights) - 1) < 0.05
