"""Time training steps on this machine."""

from __future__ import annotations

from collections.abc import Mapping

import torch
from torch.utils.benchmark import Timer

from ablations.costs.speed import Speed, Timing
from experiments.devices import default_device, device_name, peak_memory
from transformer.config import BOS_ID, EOS_ID, Config, override
from transformer.data.batches import Batch
from transformer.evaluation.counts import step_flops
from transformer.progress import show_activity
from transformer.training.method import make_module

# A CPU takes tens of seconds for one of the paper's batches; a small batch takes as long per token.
_CPU_TOKENS = 2_000
_SECONDS = 1.5
_LENGTH = 20  # word-pieces per sentence: more than Multi30k's captions have, fewer than news


def measured_speed(configs: Mapping[str, Config]) -> Speed:
    """The speed of one GPU, or else of one core, from training steps of the first configuration and
    of those with the fewest and the most FLOPs.
    """
    device = default_device()
    by_flops = sorted(configs, key=lambda name: step_flops(configs[name]))
    names = list(dict.fromkeys((by_flops[0], next(iter(configs)), by_flops[-1])))
    known: list[Timing] = []
    memory: dict[str, int] = {}
    for name in names:
        config = configs[name]
        whole = config.data.tokens_per_batch
        tokens = whole if device.type == "cuda" else min(whole, _CPU_TOKENS)
        batch = _random_batch(config.model.vocab_size, tokens).to(device)
        seconds = _median_seconds(name, config, batch, device) * whole / tokens
        known.append(Timing(config, seconds * config.training.max_steps))
        if tokens == whole:
            memory[name] = peak_memory(device)
    on_gpu = device.type == "cuda"
    where = device_name() if on_gpu else f"one core of {device_name().partition(',')[0]}"
    return Speed(
        device=where,
        basis=f"a few steps of {', '.join(names)}, timed now",
        known=known,
        memory=memory,
    )


def _random_batch(vocab_size: int, tokens: int) -> Batch:
    sentences = max(1, tokens // _LENGTH)
    src = torch.randint(EOS_ID + 1, vocab_size, (sentences, _LENGTH))
    src[:, -1] = EOS_ID
    tgt = torch.cat([torch.full((sentences, 1), BOS_ID), src], dim=1)
    return Batch(src=src, tgt=tgt, source_tokens=src.numel(), target_tokens=src.numel())


def _median_seconds(name: str, config: Config, batch: Batch, device: torch.device) -> float:
    """Seconds of a training step on ``batch``, without torch.compile."""
    module = make_module(override(config, compile=False)).to(device).train()
    optimizer = module.configure_optimizers()["optimizer"]

    def step() -> None:
        smoothed, _ = module.training_loss(batch)
        optimizer.zero_grad()
        (smoothed / batch.target_tokens).backward()
        optimizer.step()

    with show_activity(f"measuring steps of {name}"):
        timer = Timer("step()", globals={"step": step})  # it uses one thread
        return timer.blocked_autorange(min_run_time=_SECONDS).median
