"""Time a few training steps on this machine."""

from __future__ import annotations

import statistics
import time
from collections.abc import Mapping, Sequence

import torch

from ablations.costs.devices import Device
from ablations.costs.timing import Timing
from experiments.run.devices import default_device, device_name, peak_memory
from experiments.workload import Step, Workload, make_step, wait_for
from transformer.config import Config, override
from transformer.data.batches import Batch
from transformer.progress import show_progress
from transformer.training.module import TransformerModule
from transformer.training.precision import effective_precision

# A CPU takes tens of seconds for one of the paper's batches; per token, a part takes as long.
_CPU_TOKENS = 2_000
_WARM_UP_STEPS, _MIN_STEPS, _MAX_STEPS = 1, 2, 40
_SECONDS = 1.5
# Larger batches are taken to be of news, whose sentences are longer than captions.
_NEWS_TOKENS = 2_000


def measure(
    configs: Mapping[str, Config],
) -> tuple[Device, list[Timing], Mapping[str, int]]:
    """Time steps of each configuration on one GPU, or else on one core, as its run would do them.

    Returns:
        the device, the seconds that whole runs take at that speed, and the most memory that this
        process has held after each configuration, the libraries of a run included; nothing where
        only a part of a batch was measured.
    """
    from experiments.run import run  # what a run imports is in its memory

    del run
    device = default_device()
    torch.set_num_threads(1)
    timings: list[Timing] = []
    memory: dict[str, int] = {}
    loads: dict[Workload, list[Batch]] = {}  # rows may differ in batch and vocabulary
    for name, config in configs.items():
        whole = config.data.tokens_per_batch
        tokens = whole if device.type == "cuda" else min(whole, _CPU_TOKENS)
        text = "news" if whole > _NEWS_TOKENS else "multi30k"
        load = Workload(text=text, vocab_size=config.model.vocab_size, tokens_per_batch=tokens)
        if load not in loads:
            loads[load] = load.batches(_WARM_UP_STEPS + _MAX_STEPS, device)
        step = make_step(TransformerModule(override(config, compile=False)).to(device))
        seconds = _median_seconds(name, step, loads[load], device) * whole / tokens
        timings.append(Timing(config, seconds * config.training.max_steps))
        if tokens == whole and (peak := peak_memory(device)) is not None:
            memory[name] = peak
    base = next(iter(configs.values()))
    bf16 = effective_precision(base.training.precision, device) == "bf16"
    return Device(name=device_name(), gpu=device.type == "cuda", bf16=bf16), timings, memory


def _median_seconds(name: str, step: Step, batches: Sequence[Batch], device: torch.device) -> float:
    times: list[float] = []
    with show_progress(f"measuring steps of {name}", _SECONDS) as update:
        for batch in batches:
            start = time.perf_counter()
            step(batch)
            wait_for(device)
            times.append(time.perf_counter() - start)
            spent = sum(times[_WARM_UP_STEPS:])
            if spent > _SECONDS and len(times) >= _WARM_UP_STEPS + _MIN_STEPS:
                break
            update(spent)
    return statistics.median(times[_WARM_UP_STEPS:])
