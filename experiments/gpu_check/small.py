"""The models of the scale ``small`` of Table 3, timed one by one.

They stand in ``ablations/tables``, which this package may not know; a test compares the two.
"""

from __future__ import annotations

import dataclasses
import statistics
from typing import Any

import torch

from experiments.benchmark.timing import in_turn
from experiments.benchmark.training import our_step
from experiments.benchmark.workload import Workload, config_of
from experiments.gpu_check.findings import Findings
from transformer.config import Config, ModelConfig, override

_LOAD = Workload(text="multi30k", vocab_size=2_000, tokens_per_batch=500)
_STEPS, _STEPS_OF_BIG = 16_000, 48_000


def _small(**changes: Any) -> ModelConfig:
    """A row in the paper's units, with an eighth of the widths and half of the layers."""
    paper = dataclasses.replace(ModelConfig(vocab_size=_LOAD.vocab_size), **changes)
    widths = {name: getattr(paper, name) // 8 for name in ("d_model", "d_ff", "d_k", "d_v")}
    return dataclasses.replace(paper, num_layers=paper.num_layers // 2, **widths)


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
    config = dataclasses.replace(config_of("base", _LOAD), model=ROWS[row])
    return override(config, label_smoothing=_SMOOTHING.get(row, 0.1))


def small_rows(device: torch.device, rows: list[str], steps: int) -> Findings:
    """Milliseconds of a step of each row, and the hours of a seed of them one after another.

    Without the Trainer's own time, which the training of base shows. The lengths are those of
    captions in 8,000 word-pieces, somewhat fewer than the scale's 2,000 make of them.
    """
    findings = Findings()
    batches = _LOAD.batches(steps, device)
    total = 0.0
    for row in rows:
        step = our_step(config_of_row(row), device)
        in_turn(batches, step, device=device)  # each shape once
        (times,) = in_turn(batches, step, device=device)
        seconds = statistics.median(times)
        total += seconds * (_STEPS_OF_BIG if row == "big" else _STEPS)
        rate = sum(batch.target_tokens for batch in batches) / sum(times)
        findings.rows.append((f"{row}: ms a step", f"{1e3 * seconds:.2f}", f"{rate:,.0f} tokens/s"))
        findings.figures[row] = {"seconds_per_step": seconds, "target_tokens_per_second": rate}
    findings.rows.append((f"a seed of these {len(rows)} rows, hours", f"{total / 3600:.2f}"))
    findings.figures["hours_of_a_seed"] = total / 3600
    return findings
