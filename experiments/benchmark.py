"""Training speed beside a plain loop, step by step in turn, so that a busy machine hits both."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from itertools import islice
from pathlib import Path

import torch

from experiments.device import default_device, device_name
from experiments.experiment import Experiment
from experiments.files import write_json
from experiments.plain import PlainTransformer, plain_step
from experiments.provenance import commit, versions
from transformer.data.batches import Batch
from transformer.data.module import TranslationDataModule
from transformer.training.module import TransformerModule
from transformer.training.precision import effective_precision

_WARM_UP_STEPS = 3


@dataclass(frozen=True, kw_only=True, slots=True)
class Speed:
    """Real target tokens per second of both, over the same batches, and their ratio.

    ``ratio`` is the median over steps of plain time by our time; ``ratio_low`` and
    ``ratio_high`` are its quartiles, printed in brackets.
    """

    experiment: str
    steps: int
    tokens_per_second: float
    plain_tokens_per_second: float
    ratio: float
    ratio_low: float
    ratio_high: float
    fill: float
    precision: str
    device: str


def measure_training(experiment: Experiment, steps: int) -> Speed:
    """Time ``steps`` updates of the experiment's model and of a plain loop of the same size."""
    config = experiment.config
    device = default_device()
    loader = TranslationDataModule(config).train_dataloader()
    batches = [batch.to(device) for batch in islice(loader, steps + _WARM_UP_STEPS)]
    ours, plain = _our_step(experiment, device), _plain_step(experiment, device)
    for batch in batches[:_WARM_UP_STEPS]:
        ours(batch)
        plain(batch)
    batches = batches[_WARM_UP_STEPS:]
    times = [(_seconds(ours, batch), _seconds(plain, batch)) for batch in batches]
    tokens = sum(batch.target_tokens for batch in batches)
    padded = sum(batch.src.numel() + batch.tgt[:, 1:].numel() for batch in batches)
    low, median, high = statistics.quantiles((theirs / our for our, theirs in times), n=4)
    return Speed(
        experiment=experiment.name,
        steps=len(batches),
        tokens_per_second=tokens / sum(our for our, _ in times),
        plain_tokens_per_second=tokens / sum(theirs for _, theirs in times),
        ratio=median,
        ratio_low=low,
        ratio_high=high,
        fill=(tokens + sum(batch.source_tokens for batch in batches)) / padded,
        precision=effective_precision(config.training.precision, device),
        device=device_name(),
    )


def benchmark(experiment: Experiment, steps: int, output: Path | None) -> None:
    """Measure, print, and write JSON where ``output`` says."""
    speed = measure_training(experiment, steps)
    lines = (
        f"{speed.experiment} on {speed.device}, {speed.precision}, {speed.steps} steps in turn",
        f"  ours        {speed.tokens_per_second:10,.0f} target tokens/s",
        f"  plain loop  {speed.plain_tokens_per_second:10,.0f} target tokens/s, fp32",
        f"  ratio       {speed.ratio:10.2f} ({speed.ratio_low:.2f} to {speed.ratio_high:.2f})",
        f"  {speed.fill:.1%} of the batches' positions hold real tokens",
    )
    print("\n".join(lines))
    if output is not None:
        made = {"commit": commit(), "versions": versions()}
        now = {"finished_at": datetime.now(UTC).isoformat(timespec="seconds")}
        write_json(output, asdict(speed) | made | now)


def _our_step(experiment: Experiment, device: torch.device) -> Callable[[Batch], None]:
    module = TransformerModule(experiment.config).to(device).train()
    optimizer = module.configure_optimizers()["optimizer"]

    def step(batch: Batch) -> None:
        smoothed, _ = module.training_loss(batch)
        optimizer.zero_grad()
        (smoothed / batch.target_tokens).backward()
        optimizer.step()

    return step


def _plain_step(experiment: Experiment, device: torch.device) -> Callable[[Batch], None]:
    model = PlainTransformer(experiment.config).to(device).train()
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-4, betas=(0.9, 0.98), fused=True)
    smoothing = experiment.config.training.label_smoothing
    return lambda batch: plain_step(model, optimizer, batch, smoothing)


def _seconds(step: Callable[[Batch], None], batch: Batch) -> float:
    _wait(batch)
    start = time.perf_counter()
    step(batch)
    _wait(batch)
    return time.perf_counter() - start


def _wait(batch: Batch) -> None:
    if batch.src.is_cuda:
        torch.cuda.synchronize()
