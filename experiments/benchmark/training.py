"""Training: steps of our model and of a plain loop of the same size, on the same batches."""

from __future__ import annotations

import math
import statistics
import time
from collections.abc import Callable
from dataclasses import dataclass
from itertools import pairwise, repeat

import lightning.pytorch as lightning
import torch

from experiments.benchmark.kernels import profile
from experiments.benchmark.plain import PlainTransformer, plain_step
from experiments.benchmark.timing import Ratio, Row, in_turn, ratio_of
from experiments.benchmark.workload import Size, config_of, workload
from experiments.callbacks.display import quieten_lightning
from experiments.run.devices import peak_memory
from transformer.config import Config, override
from transformer.data.batches import Batch, FixedBatches
from transformer.evaluation.counts import training_flops
from transformer.training.module import TransformerModule
from transformer.training.precision import effective_precision, multiplies_bf16

_WARM_UP_STEPS = 2
_OVERHEAD_STEPS = 200
_PROFILED_STEPS = 3
# The side of square matrices: large enough to reach the peak in some hundredths of a second.
_SIDE = {"cpu": 1_024, "cuda": 8_192}

Step = Callable[[Batch], None]


@dataclass(frozen=True, kw_only=True, slots=True)
class TrainingSpeed:
    """Real tokens per second; ``tflops`` are those of the model's products on real tokens.

    ``mfu`` is our flops per second over those of a large matrix product in fp32 and in bf16, timed
    in turn with the steps; if ``native_bf16`` is false, bf16 was emulated. ``ratio`` is the time
    of the plain loop over ours. ``peak_memory_bytes`` is of this process, or of the GPU, up to our
    largest step. ``warm_up_seconds`` is what came before the first timed step; on a GPU that is a
    step of each of the ``shapes``, which are the different batches that are timed. ``kernels`` are
    the seconds of a step by kind of operation, and ``busy`` is the share of a step in which the
    device works. ``trainer_overhead_seconds`` is what Lightning's Trainer adds to each step,
    measured with a step that does next to nothing.
    """

    steps: int
    shapes: int
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
    warm_up_seconds: float
    seconds_per_step: float
    busy: float
    kernels: dict[str, float]
    trainer_overhead_seconds: float

    def rows(self) -> list[Row]:
        """What is printed."""
        ours, plain = self.target_tokens_per_second, self.plain_target_tokens_per_second
        name = f"train, {self.precision}: target tokens/s"
        memory = self.peak_memory_bytes
        return [
            (name, f"{ours:,.0f}", f"{plain:,.0f}", str(self.ratio)),
            ("  source tokens/s", f"{self.source_tokens_per_second:,.0f}"),
            ("  TFLOP/s", f"{self.tflops:.3f}"),
            *(
                (f"  MFU of {peak:.2f} TFLOP/s {name}", f"{self.mfu[name].median:.1%}")
                for name, peak in self.peak_tflops.items()
                if name != "bf16" or self.native_bf16
            ),
            ("  fill of the batches", f"{self.fill:.1%}"),
            ("  peak memory, MiB", f"{memory / 2**20:,.0f}" if memory else ""),
            ("  ms a step", f"{1e3 * self.seconds_per_step:.1f}"),
            ("  of it the device works", f"{self.busy:.0%}"),
            *((f"    {kind}", f"{1e3 * seconds:.2f} ms") for kind, seconds in self.kernels.items()),
            ("  s to warm up", f"{self.warm_up_seconds:.1f}"),
            ("  ms a step by the Trainer", f"{1e3 * self.trainer_overhead_seconds:.2f}"),
        ]


def measure_training(
    size: Size,
    device: torch.device,
    steps: int,
    *,
    compile: bool = False,
    warm_up_seconds: float = math.inf,
) -> TrainingSpeed:
    """Time ``steps`` steps of both, and matrix products between them.

    On a GPU each shape of a batch is warmed up before it is timed, as its kernels are planned or
    compiled at the first step. No further shape is added after ``warm_up_seconds``; the timed steps
    then repeat those that there are.
    """
    load = workload(device)
    config = override(config_of(size, load), compile=compile)
    batches = load.batches(_WARM_UP_STEPS + steps, device)
    # The largest comes first: no later one needs more memory.
    batches.sort(key=lambda batch: -batch.tgt.numel() - batch.src.numel())
    batches = [batches[0], *sorted(batches[1:], key=lambda batch: batch.number)]
    ours = our_step(config, device)
    warm_up = _warm_up(ours, batches, device, warm_up_seconds)
    memory = peak_memory(device)
    plain = _plain_step(config, device)
    products = {"fp32": torch.float32, "bf16": torch.bfloat16}
    peaks = [matrix_product(device, dtype) for dtype in products.values()]
    shapes = len(warm_up)
    in_turn(batches[:shapes], plain, *peaks, device=device)
    if device.type == "cuda":
        timed = (batches[_WARM_UP_STEPS:shapes] or batches[:1]) * steps
        batches = timed[:steps]
    else:
        batches = batches[_WARM_UP_STEPS:]
    our_times, plain_times, *peak_times = in_turn(batches, ours, plain, *peaks, device=device)
    busy, kernels = profile(ours, batches[:_PROFILED_STEPS], device)
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
        shapes=len({batch.number for batch in batches}),
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
        warm_up_seconds=sum(warm_up),
        seconds_per_step=sum(our_times) / steps,
        busy=busy,
        kernels=kernels,
        trainer_overhead_seconds=_trainer_overhead(config, device),
    )


def _warm_up(step: Step, batches: list[Batch], device: torch.device, seconds: float) -> list[float]:
    """The times of the first steps: on a GPU of as many batches as begin within ``seconds``."""
    times: list[float] = []
    for batch in batches if device.type == "cuda" else batches[:_WARM_UP_STEPS]:
        if sum(times) < seconds:
            times += in_turn([batch], step, device=device)[0]
    return times


def our_step(config: Config, device: torch.device) -> Step:
    """A function that trains a new model of ours on ``device`` with one batch."""
    return step_of(TransformerModule(config).to(device))


def step_of(module: TransformerModule) -> Step:
    """A function that trains ``module`` with one batch."""
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
    precision = config.training.precision
    return lambda batch: plain_step(model, optimizer, batch, smoothing, precision)


def matrix_product(device: torch.device, dtype: torch.dtype) -> Callable[[object], None]:
    """A large matrix product, the fastest work that a device can do; the argument is ignored."""
    side = _SIDE[device.type]
    left, right = torch.randn(2, side, side, device=device).to(dtype).unbind()
    out = torch.empty_like(left)

    def multiply(_: object) -> None:
        torch.mm(left, right, out=out)

    return multiply


def product_flops(device: torch.device) -> float:
    """The operations of that product."""
    return 2.0 * _SIDE[device.type] ** 3


def _trainer_overhead(config: Config, device: torch.device) -> float:
    """Seconds per step of a tiny model with a Trainer, minus those without one."""
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
    row = torch.ones(1, 3, dtype=torch.long)
    batch = Batch(src=row, tgt=row, source_tokens=3, target_tokens=2).to(device)
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
    torch.set_num_threads(1)  # several would only wait for each other
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
