"""How far memory grows and which steps bring new shapes, with known steps."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
import torch

from experiments.benchmark import growth
from experiments.benchmark.workload import SIZES, Workload
from tests.samples import random_sentences, random_targets
from transformer.config import ModelConfig
from transformer.data.batches import Batch
from transformer.kernels.threads import torch_threads

DEVICE = torch.device("cpu")
SMALL = ModelConfig(num_layers=1, d_model=14, d_ff=22, num_heads=2, d_k=7, d_v=7)


def batch_of(src: list[int], tgt: list[int]) -> Batch:
    return Batch(
        src=random_sentences(src), tgt=random_targets(tgt), source_tokens=29, target_tokens=31
    )


# The second and the fourth are as the first.
BATCHES = [
    batch_of([5, 3], [4, 7]),
    batch_of([5, 3], [4, 7]),
    batch_of([5, 3, 4], [4, 7, 2]),
    batch_of([3, 5], [7, 4]),
    batch_of([5], [7]),
]


@pytest.fixture
def small(monkeypatch: pytest.MonkeyPatch) -> None:
    def batches(load: Workload, device: torch.device) -> Iterator[Batch]:
        del load, device
        return iter(BATCHES)

    monkeypatch.setitem(SIZES, "tiny", SMALL)
    monkeypatch.setattr(Workload, "all_batches", batches)


@pytest.mark.parametrize("threads", [1, 2])
def test_a_shape_is_new_if_no_step_before_had_it(threads: int, small: None) -> None:
    """Also with two threads, where each computes a part of the batch."""
    with torch_threads(threads):
        found = growth.train_watched("tiny", DEVICE, "fp32", 5)
    assert found.new_shape_steps == pytest.approx(3 / 5)
    assert (found.steps, found.settled, found.precision) == (5, 2, "fp32")


def test_growth_starts_where_memory_has_settled(
    small: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    held = iter([10, 900, 400, 500, 450])
    monkeypatch.setattr(growth, "bytes_held", lambda _: next(held))
    found = growth.train_watched("tiny", DEVICE, "fp32", 5)
    assert (found.bytes_when_settled, found.peak_bytes) == (400, 900)
    assert found.growth == pytest.approx(0.25)


@pytest.mark.skipif(not Path("/proc/self/smaps_rollup").exists(), reason="only Linux says")
def test_the_memory_of_the_process_is_measured(small: None) -> None:
    found = growth.train_watched("tiny", DEVICE, "fp32", 2)
    assert found.peak_bytes >= found.bytes_when_settled > 2**26
