"""A few steps on this machine, where nothing else says how long one takes."""

from __future__ import annotations

import statistics
import time
from collections.abc import Mapping, Sequence

import torch

from ablations.costs.memory import Hardware
from ablations.costs.timing import Timing
from experiments.benchmark.timing import wait_for
from experiments.benchmark.training import Step, our_step
from experiments.benchmark.workload import Workload
from experiments.run.devices import default_device, device_name
from transformer.config import Config, override
from transformer.data.batches import Batch
from transformer.progress import show_progress
from transformer.training.precision import effective_precision

# A CPU takes tens of seconds for a batch of the paper's; in part of one a token takes as long.
_CPU_TOKENS = 500
_WARM_UP_STEPS, _FEWEST_STEPS, _MOST_STEPS = 1, 2, 40
_SECONDS = 1.5
# Batches of more tokens are of news, whose sentences are longer than captions.
_LONG_SENTENCES = 2_000


def measure(configs: Mapping[str, Config]) -> tuple[str, Hardware, list[Timing]]:
    """Time steps of each configuration on one GPU, or on one core, as a run there has.

    Returns:
        the device's name, what it is, and what whole runs take at that speed.
    """
    device = default_device()
    torch.set_num_threads(1)
    base = next(iter(configs.values()))
    batches, share = _batches(base, device)
    timings: list[Timing] = []
    for name, config in configs.items():
        step = our_step(override(config, compile=False), device)
        seconds = _median_seconds(name, step, batches, device) / share
        timings.append(Timing(config, seconds * config.training.max_steps))
    precision = effective_precision(base.training.precision, device)
    return device_name(), Hardware(gpu=device.type == "cuda", half=precision == "bf16"), timings


def _batches(config: Config, device: torch.device) -> tuple[list[Batch], float]:
    """Batches for all rows, which share their text, and what share of a whole one each is."""
    whole = config.data.tokens_per_batch
    tokens = whole if device.type == "cuda" else min(whole, _CPU_TOKENS)
    text = "news" if whole > _LONG_SENTENCES else "multi30k"
    load = Workload(text=text, vocab_size=config.model.vocab_size, tokens_per_batch=tokens)
    return load.batches(_WARM_UP_STEPS + _MOST_STEPS, device), tokens / whole


def _median_seconds(name: str, step: Step, batches: Sequence[Batch], device: torch.device) -> float:
    times: list[float] = []
    with show_progress(f"measuring steps of {name}", _SECONDS) as update:
        for batch in batches:
            start = time.perf_counter()
            step(batch)
            wait_for(device)
            times.append(time.perf_counter() - start)
            spent = sum(times[_WARM_UP_STEPS:])
            if spent > _SECONDS and len(times) >= _WARM_UP_STEPS + _FEWEST_STEPS:
                break
            update(spent)
    return statistics.median(times[_WARM_UP_STEPS:])
