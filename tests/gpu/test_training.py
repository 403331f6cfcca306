"""Speed and memory of the paper's models, and of decoding."""

from __future__ import annotations

import math
import statistics
from functools import partial

import pytest
import torch

from bench.common import Size, config_of, in_turn, workload
from bench.kernels import profile
from bench.train import Race
from bench.workload import Way, make_step_of
from experiments.devices import device_name, nominal_peak
from tests.gpu.test_equality import Record
from transformer.config import DecodingConfig
from transformer.decoding import decode_sentences
from transformer.model.encoder_decoder import Transformer

_STEPS = {"tiny": 2, "base": 22, "big": 14}
# A rate above that of a large product would mean that the time was taken before the work was done;
# on a CPU, that other processes had slowed the product.
_LARGEST_SHARE = {"cuda": 1.1, "cpu": math.inf}
# What is packed is for GPUs: it takes minutes on a CPU.
_WAYS: dict[str, tuple[Way, ...]] = {
    "cuda": ("plain", "packed, not compiled", "packed, not captured", "packed"),
    "cpu": ("plain", "captured"),
}


@pytest.mark.seconds(180)
def test_training(timed_size: Size, device: torch.device, record_property: Record) -> None:
    """Steps of 25,000 + 25,000 tokens on a GPU, in turn with a plain loop of ``nn.Transformer``."""
    race = Race(timed_size, device, _STEPS[timed_size])
    ways = _WAYS[device.type]
    for way in ways:
        race.enter(way, partial(make_step_of, race.config, way, device))
    race.enter_rival(compile=False)
    record_all(race, device, record_property)
    found = profile(race.steps[ways[-1]], race.batches[:3], device)
    for name in ("busy", "ms_by_operation"):
        record_property(name, found[name])


def record_all(race: Race, device: torch.device, record: Record) -> None:
    """Record a race's figures, and the shares of the maker's peak."""
    figures = race.run()
    for name, value in figures.items():
        record(name, value)
    precision = "bf16" if figures["precision"] == "bf16" else "fp32"
    if nominal := nominal_peak(device_name(device), precision):
        shares = {name: 1e12 * each / nominal for name, each in figures["tflops"].items()}
        record("share_of_the_nominal_peak", shares)
    assert not race.failed
    shares = figures["share_of_a_large_product"].values()
    assert max(share.median for share in shares) < _LARGEST_SHARE[device.type]


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
    for name, value in profile(decode, [0], device).items():  # one step is the whole search
        record_property(name, value)
    assert len(found) == count
    assert statistics.fmean(found) == pytest.approx(statistics.fmean(map(len, sources)), rel=0.1)


def skip_compiling(device: torch.device) -> None:
    """Skip a test on a CPU."""
    if device.type == "cpu":
        pytest.skip("compiling takes minutes on a CPU")


@pytest.mark.seconds(200)
def test_training_against_compiled(
    timed_size: Size, device: torch.device, record_property: Record
) -> None:
    """In turn with a plain loop of a compiled ``nn.Transformer``."""
    skip_compiling(device)
    race = Race(timed_size, device, _STEPS[timed_size])
    race.enter("packed", partial(make_step_of, race.config, "packed", device))
    race.enter_rival(compile=True)
    record_all(race, device, record_property)


@pytest.mark.seconds(200)
def test_compiled_training(device: torch.device, record_property: Record) -> None:
    """Padded and compiled for any shape, as several GPUs train with ``--compile``; the base."""
    skip_compiling(device)
    from torch._dynamo.utils import counters  # takes seconds

    counters.clear()
    race = Race("base", device, _STEPS["base"])
    race.enter("compiled", partial(make_step_of, race.config, "compiled", device))
    record_property("graphs", counters["stats"]["unique_graphs"])
    race.enter_rival(compile=False)
    record_all(race, device, record_property)
