"""Training steps timed on this machine."""

from __future__ import annotations

import statistics
import time
from collections.abc import Mapping, Sequence

import numpy as np
import torch

from ablations.costs.speed import OVERHEAD, Speed
from ablations.costs.timing import Timing
from experiments.devices import default_device, device_name, peak_memory
from transformer.config import EOS_ID, Config, override
from transformer.data.batches import Batch, BatchPlan, collate
from transformer.data.buckets import Buckets
from transformer.data.store import EncodedPairs, starts_of
from transformer.evaluation.counts import step_flops
from transformer.progress import show_progress
from transformer.training.module import TransformerModule
from transformer.training.precision import effective_precision

# A CPU takes tens of seconds for one of the paper's batches; per token, a part takes as long.
_CPU_TOKENS = 2_000
_WARM_UP_STEPS, _MIN_STEPS, _MAX_STEPS = 1, 2, 40
_SECONDS = 1.5
# Word-pieces of a sentence, between the captions of Multi30k (16 ± 5) and news (27 ± 15): steps on
# either took at most a sixth longer.
_LENGTH, _DEVIATION = 20, 9
_PAIRS = 20_000


def measured_speed(configs: Mapping[str, Config]) -> Speed:
    """The speed of one GPU, or else of one core, by some steps as runs would do them.

    They are steps of the first configuration and of those with the fewest and the most FLOPs. The
    memory is what this process has held after each; it is left out where only a part of a batch
    was measured.
    """
    from experiments.run import run  # what a run imports is in its memory

    del run
    device = default_device()
    torch.set_num_threads(1)
    by_flops = sorted(configs, key=lambda name: step_flops(configs[name]))
    names = list(dict.fromkeys((by_flops[0], next(iter(configs)), by_flops[-1])))
    known: list[Timing] = []
    memory: dict[str, int] = {}
    for name in names:
        whole = configs[name].data.tokens_per_batch
        tokens = whole if device.type == "cuda" else min(whole, _CPU_TOKENS)
        batches = _batches(configs[name].model.vocab_size, tokens, device)
        seconds = _median_seconds(name, configs[name], batches, device) * whole / tokens
        known.append(Timing(configs[name], seconds * configs[name].training.max_steps))
        if tokens == whole and (peak := peak_memory(device)) is not None:
            memory[name] = peak
    is_gpu = device.type == "cuda"
    where = device_name() if is_gpu else f"one core of {device_name().partition(',')[0]}"
    return Speed(
        device=where,
        is_gpu=is_gpu,
        precision=effective_precision(configs[names[0]].training.precision, device),
        source=f"some steps of {', '.join(names)} on {where}, measured now; assumed: {OVERHEAD}",
        known=known,
        memory=memory,
    )


def _batches(vocab_size: int, tokens: int, device: torch.device) -> list[Batch]:
    """The first batches of a corpus of random word-pieces."""
    random = np.random.default_rng(1)
    scale = _DEVIATION**2 / _LENGTH
    lengths = 1 + random.gamma(_LENGTH / scale, scale, (_PAIRS, 1)).astype(np.int64).repeat(2, 1)
    words = random.integers(EOS_ID + 1, vocab_size, lengths.sum())
    pairs = EncodedPairs(words, lengths, starts_of(lengths, 0))
    plan = BatchPlan(Buckets.of(lengths), tokens, seed=1)
    return [
        collate(pairs, plan.batch(number), number=number).to(device)
        for number in range(_WARM_UP_STEPS + _MAX_STEPS)
    ]


def _median_seconds(
    name: str, config: Config, batches: Sequence[Batch], device: torch.device
) -> float:
    module = TransformerModule(override(config, compile=False)).to(device).train()
    optimizer = module.configure_optimizers()["optimizer"]
    times: list[float] = []
    with show_progress(f"measuring steps of {name}", _SECONDS) as update:
        for batch in batches:
            start = time.perf_counter()
            smoothed, _ = module.training_loss(batch)
            optimizer.zero_grad()
            (smoothed / batch.target_tokens).backward()
            optimizer.step()
            torch.get_device_module(device).synchronize()
            times.append(time.perf_counter() - start)
            spent = sum(times[_WARM_UP_STEPS:])
            if spent > _SECONDS and len(times) >= _WARM_UP_STEPS + _MIN_STEPS:
                break
            update(spent)
    return statistics.median(times[_WARM_UP_STEPS:])
