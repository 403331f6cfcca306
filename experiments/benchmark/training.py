"""Training: updates of our model and of a plain loop of the same size, on the same batches."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable
from dataclasses import dataclass
from itertools import pairwise, repeat

import lightning.pytorch as lightning
import torch

from experiments.benchmark.hardware import matrix_product, peak_memory, product_flops
from experiments.benchmark.plain import PlainTransformer, plain_step
from experiments.benchmark.timing import Ratio, in_turn, ratio_of
from experiments.benchmark.workload import Size, config_of, workload
from experiments.callbacks.display import quieten_lightning
from transformer.config import Config, override
from transformer.data.batches import Batch, FixedBatches
from transformer.evaluation.flops import training_flops
from transformer.training.module import TransformerModule
from transformer.training.precision import effective_precision, multiplies_bf16

_WARM_UP_STEPS = 2
_OVERHEAD_STEPS = 200

Step = Callable[[Batch], None]


@dataclass(frozen=True, kw_only=True, slots=True)
class TrainingSpeed:
    """Real tokens per second; ``tflops`` are those of the model's products on real tokens.

    ``mfu`` is flops per second by those of a large matrix product, in fp32 and in bf16, that was
    timed in turn with the steps; where ``native_bf16`` is false, that of bf16 was emulated.
    ``ratio`` is plain time by ours. Memory is this process's, or the GPU's, up to the largest
    step of ours. ``trainer_overhead_seconds`` is what Lightning's Trainer adds to each step,
    found with a step of next to nothing.
    """

    steps: int
    precision: str
    source_tokens_per_second: float
    target_tokens_per_second: float
    plain_target_tokens_per_second: float
    ratio: Ratio
    tflops: float
    native_bf16: bool
    peak_tflops: dict[str, float]
    mfu: dict[str, Ratio]
    fill: float
    peak_memory_bytes: int | None
    seconds_per_step: float
    trainer_overhead_seconds: float


def measure_training(
    size: Size, device: torch.device, steps: int, *, compile: bool = False
) -> TrainingSpeed:
    """Time ``steps`` updates of both, and matrix products between them."""
    load = workload(device)
    config = override(config_of(size, load), compile=compile)
    batches = load.batches(_WARM_UP_STEPS + steps, device)
    # The largest comes first: what it needs is needed by no later one.
    batches.sort(key=lambda batch: -batch.tgt.numel() - batch.src.numel())
    batches = [batches[0], *sorted(batches[1:], key=lambda batch: batch.number)]
    ours = our_step(config, device)
    in_turn(batches[:_WARM_UP_STEPS], ours, device=device)
    memory = peak_memory(device)
    plain = _plain_step(config, device)
    products = {"fp32": torch.float32, "bf16": torch.bfloat16}
    peaks = [matrix_product(device, dtype) for dtype in products.values()]
    in_turn(batches[:_WARM_UP_STEPS], plain, *peaks, device=device)
    batches = batches[_WARM_UP_STEPS:]
    our_times, plain_times, *peak_times = in_turn(batches, ours, plain, *peaks, device=device)

    flops = [training_flops(config.model, b.source_tokens, b.target_tokens) for b in batches]
    our_rates = [count / t for count, t in zip(flops, our_times, strict=True)]
    peak_rates = {
        name: [product_flops(device) / t for t in times]
        for name, times in zip(products, peak_times, strict=True)
    }
    source = sum(batch.source_tokens for batch in batches)
    target = sum(batch.target_tokens for batch in batches)
    positions = sum(batch.src.numel() + batch.tgt[:, 1:].numel() for batch in batches)
    return TrainingSpeed(
        steps=steps,
        precision=effective_precision(config.training.precision, device),
        source_tokens_per_second=source / sum(our_times),
        target_tokens_per_second=target / sum(our_times),
        plain_target_tokens_per_second=target / sum(plain_times),
        ratio=ratio_of(plain_times, our_times),
        tflops=sum(flops) / sum(our_times) / 1e12,
        native_bf16=multiplies_bf16(device),
        peak_tflops={name: statistics.median(x) / 1e12 for name, x in peak_rates.items()},
        mfu={name: ratio_of(our_rates, rates) for name, rates in peak_rates.items()},
        fill=(source + target) / positions,
        peak_memory_bytes=memory,
        seconds_per_step=sum(our_times) / steps,
        trainer_overhead_seconds=_trainer_overhead(config, device),
    )


def our_step(config: Config, device: torch.device) -> Step:
    """A new model of ours on ``device``, as a function that trains it by one batch."""
    return step_of(TransformerModule(config).to(device))


def step_of(module: TransformerModule) -> Step:
    """A function that trains ``module`` by one batch."""
    module.train()
    optimizer = module.configure_optimizers()["optimizer"]

    def step(batch: Batch) -> None:
        smoothed, _ = module.training_loss(batch)
        optimizer.zero_grad()
        (smoothed / batch.target_tokens).backward()
        optimizer.step()

    return step


def _plain_step(config: Config, device: torch.device) -> Step:
    model = PlainTransformer(config.model).to(device).train()
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-4, betas=(0.9, 0.98), fused=True)
    smoothing = config.training.label_smoothing
    return lambda batch: plain_step(model, optimizer, batch, smoothing)


def _trainer_overhead(config: Config, device: torch.device) -> float:
    """Seconds a step of a model of next to nothing, in a Trainer less without one."""
    config = override(
        config,
        compile=False,
        vocab_size=8,
        num_layers=1,
        d_model=2,
        d_ff=1,
        num_heads=1,
        d_k=1,
        d_v=1,
    )
    row = torch.ones(1, 3, dtype=torch.long, device=device)
    batch = Batch(src=row, tgt=row, source_tokens=3, target_tokens=2)
    batches = FixedBatches(repeat(batch, _OVERHEAD_STEPS))
    step = our_step(config, device)
    quieten_lightning()
    timer = _StepTimer()
    trainer = lightning.Trainer(
        accelerator=device.type,
        devices=1,
        max_steps=_OVERHEAD_STEPS,
        callbacks=[timer],
        logger=False,
        enable_checkpointing=False,
        enable_progress_bar=False,
        enable_model_summary=False,
    )
    threads = torch.get_num_threads()
    torch.set_num_threads(1)  # several would wait for one another, and for nothing
    try:
        trainer.fit(TransformerModule(config), batches)
        (bare,) = in_turn(batches, step, device=device)
    finally:
        torch.set_num_threads(threads)
    within = [after - before for before, after in pairwise(timer.ends)]
    return statistics.median(within) - statistics.median(bare)


class _StepTimer(lightning.Callback):
    def __init__(self) -> None:
        self.ends: list[float] = []

    def on_train_batch_end(self, *args: object, **kwargs: object) -> None:
        del args, kwargs
        self.ends.append(time.perf_counter())
