"""Time training steps in turn with nn.Transformer."""

from __future__ import annotations

import math
import statistics
from collections.abc import Callable
from itertools import cycle, islice

import torch

from bench.common import Figures, Size, config_of, in_turn, ratio_of, run, workload
from bench.plain import make_plain_step
from bench.workload import make_step
from experiments.devices import peak_memory
from transformer.config import override
from transformer.evaluation.counts import training_flops
from transformer.training.module import TransformerModule
from transformer.training.precision import effective_precision

_WARM_UP_STEPS = 2
# The side of square matrices: large enough to reach the peak in some hundredths of a second.
_SIDE = {"cpu": 1_024, "cuda": 8_192}
# Products that are timed together: on a GPU, a single one is mostly waited for.
_PRODUCTS = {"cpu": 1, "cuda": 20}


def measure_training(
    size: Size,
    device: torch.device,
    turns: int,
    *,
    compile: bool = False,
    warm_up_seconds: float = math.inf,
) -> Figures:
    """Time ``turns`` steps of both, and large matrix products after each.

    On a GPU each shape of a batch is warmed up before it is timed, as its kernels are planned or
    compiled at the first step. No further shape is added after ``warm_up_seconds``; the timed steps
    then repeat those that there are. FLOPs and tokens are those of real tokens, without padding.
    """
    load = workload(device)
    config = override(config_of(size, load), compile=compile)
    precision = effective_precision(config, device)
    batches = load.batches(_WARM_UP_STEPS + turns, device)
    largest = max(batches, key=lambda batch: batch.src.numel() + batch.tgt.numel())
    ours = make_step(TransformerModule(config).to(device))
    # Before anything else: no later batch needs more memory.
    first = in_turn([largest], ours, device=device)[0]
    memory = peak_memory(device)
    seen = []
    for batch in batches if device.type == "cuda" else batches[:_WARM_UP_STEPS]:
        if sum(first) < warm_up_seconds:
            first += in_turn([batch], ours, device=device)[0]
            seen.append(batch)
    plain, multiply = make_plain_step(config, device), matrix_product(device, precision == "bf16")
    in_turn(seen, plain, multiply, device=device)
    repeated = cycle(seen or [largest])
    timed = list(islice(repeated, turns)) if device.type == "cuda" else batches[_WARM_UP_STEPS:]
    times, plain_times, product_times = in_turn(timed, ours, plain, multiply, device=device)
    flops = [training_flops(config.model, x.source_tokens, x.target_tokens) for x in timed]
    rates = [count / seconds for count, seconds in zip(flops, times, strict=True)]
    peaks = [product_flops(device) / seconds for seconds in product_times]
    target = sum(batch.target_tokens for batch in timed)
    source = sum(batch.source_tokens for batch in timed)
    positions = sum(batch.src.numel() + batch.tgt[:, 1:].numel() for batch in timed)
    return {
        "precision": precision,
        "steps": turns,
        "shapes": len({batch.number for batch in timed}),
        "target_tokens_per_second": target / sum(times),
        "plain_target_tokens_per_second": target / sum(plain_times),
        "ratio": ratio_of(plain_times, times),
        "ms_per_step": 1e3 * statistics.median(times),
        "tflops": sum(flops) / sum(times) / 1e12,
        "share_of_a_large_product": ratio_of(rates, peaks),
        "fill_of_the_batches": (source + target) / positions,
        "peak_memory_mib": memory / 2**20,
        "warm_up_seconds": sum(first),
    }


def matrix_product(device: torch.device, bf16: bool) -> Callable[[object], object]:
    """Large matrix products, the fastest work that a device can do; the argument is ignored."""
    dtype = torch.bfloat16 if bf16 else torch.float32
    left, right = torch.randn(2, _SIDE[device.type], _SIDE[device.type], device=device).to(dtype)
    out = torch.empty_like(left)

    def multiply(_: object) -> None:
        for _ in range(_PRODUCTS[device.type]):
            torch.mm(left, right, out=out)

    return multiply


def product_flops(device: torch.device) -> float:
    """The operations of those products."""
    return 2.0 * _SIDE[device.type] ** 3 * _PRODUCTS[device.type]


if __name__ == "__main__":
    run(measure_training, turns=40, compile="train ours with torch.compile")
