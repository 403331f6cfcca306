"""The models of the scale ``small`` of Table 3, timed one by one.

They stand in ``ablations/tables``, which this package may not know; a test compares the two.
"""

from __future__ import annotations

import dataclasses
import statistics
from typing import Any

import torch

from experiments.benchmark.kernels import profile
from experiments.benchmark.timing import in_turn
from experiments.benchmark.training import matrix_product, our_step, product_flops
from experiments.benchmark.workload import Workload, config_of
from experiments.gpu_check.findings import Findings
from experiments.run.devices import peak_memory
from transformer.config import Config, ModelConfig, override
from transformer.data.batches import Batch
from transformer.evaluation.counts import training_flops
from transformer.training.precision import effective_precision

LOAD = Workload(text="multi30k", vocab_size=2_000, tokens_per_batch=1_000)
_STEPS, _STEPS_OF_BIG = 12_000, 36_000
# How often each batch is timed.
_REPEATS = 3


def _small(**changes: Any) -> ModelConfig:
    """A row in the paper's units, with an eighth of the widths, half of the layers and dropout."""
    paper = dataclasses.replace(ModelConfig(vocab_size=LOAD.vocab_size), **changes)
    widths = {name: getattr(paper, name) // 8 for name in ("d_model", "d_ff", "d_k", "d_v")}
    return dataclasses.replace(
        paper, num_layers=paper.num_layers // 2, dropout=paper.dropout / 2, **widths
    )


ROWS: dict[str, ModelConfig] = {
    "base": _small(),
    "A-h1": _small(num_heads=1, d_k=512, d_v=512),
    "A-h4": _small(num_heads=4, d_k=128, d_v=128),
    "A-h16": _small(num_heads=16, d_k=32, d_v=32),
    "A-h32": _small(num_heads=32, d_k=16, d_v=16),
    "B-dk16": _small(d_k=16),
    "B-dk32": _small(d_k=32),
    "C-N2": _small(num_layers=2),
    "C-N4": _small(num_layers=4),
    "C-N8": _small(num_layers=8),
    "C-d256": _small(d_model=256, d_k=32, d_v=32),
    "C-d1024": _small(d_model=1024, d_k=128, d_v=128),
    "C-ff1024": _small(d_ff=1024),
    "C-ff4096": _small(d_ff=4096),
    "D-p0.0": _small(dropout=0.0),
    "D-p0.2": _small(dropout=0.2),
    "D-ls0.0": _small(),
    "D-ls0.2": _small(),
    "E": _small(positions="learned"),
    "big": _small(d_model=1024, d_ff=4096, num_heads=16, dropout=0.3),
}
_SMOOTHING = {"D-ls0.0": 0.0, "D-ls0.2": 0.2}


def config_of_row(row: str) -> Config:
    """The configuration of a row, for training without a corpus."""
    config = dataclasses.replace(config_of("base", LOAD), model=ROWS[row])
    return override(config, label_smoothing=_SMOOTHING.get(row, 0.1))


def small_rows(device: torch.device, findings: Findings, rows: list[str], batches: int) -> None:
    """The speed of each row, and the hours that a seed of them takes one after another.

    Without the Trainer's own time, which the training of base shows. The lengths are those of
    captions in 8,000 word-pieces, somewhat fewer than the scale's 2,000 make of them.
    """
    distinct = LOAD.batches(batches, device)
    precision = effective_precision("auto", device)
    multiply = matrix_product(device, torch.bfloat16 if precision == "bf16" else torch.float32)
    in_turn([0], multiply, device=device)
    (product_times,) = in_turn(range(5), multiply, device=device)
    peak = product_flops(device) / statistics.median(product_times)
    for row in rows:
        if row not in findings.rows:
            _measure_row(row, device, findings, distinct, peak)
    seconds = {row: findings.figures[row]["seconds_per_step"] for row in rows}
    steps = {row: _STEPS_OF_BIG if row == "big" else _STEPS for row in rows}
    hours = sum(seconds[row] * steps[row] for row in rows) / 3600
    findings.add(f"hours of a seed of {len(rows)} rows", f"{hours:.2f}", figures=hours)


def _measure_row(
    row: str, device: torch.device, findings: Findings, batches: list[Batch], peak: float
) -> None:
    """Add milliseconds a step, tokens/s, MFU, memory, and the time by kind of kernel."""
    config = config_of_row(row)
    step = our_step(config, device)
    if device.type == "cuda":
        torch.cuda.reset_peak_memory_stats(device)
    (warm_up,) = in_turn(batches, step, device=device)  # each shape once
    memory = peak_memory(device)
    (times,) = in_turn(_REPEATS * batches, step, device=device)
    flops = sum(training_flops(config.model, b.source_tokens, b.target_tokens) for b in batches)
    busy, kernels = profile(step, batches[:1], device)
    seconds = statistics.median(times)
    rate = _REPEATS * sum(b.target_tokens for b in batches) / sum(times)
    mfu = _REPEATS * flops / sum(times) / peak
    figures = {
        "seconds_per_step": seconds,
        "target_tokens_per_second": rate,
        "mfu": mfu,
        "peak_memory_bytes": memory,
        "warm_up_seconds": sum(warm_up),
        "busy": busy,
        "kernels": kernels,
    }
    findings.add(
        row,
        f"{1e3 * seconds:.2f} ms a step",
        f"{rate:,.0f} target tokens/s",
        f"MFU {mfu:.1%}",
        "" if memory is None else f"{memory / 2**20:,.0f} MiB",
        f"device works {busy:.0%}",
        figures=figures,
    )
