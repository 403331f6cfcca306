"""The parts of the check, those of most worth first."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import asdict, dataclass
from functools import partial

import torch

from experiments.benchmark.training import measure_training
from experiments.benchmark.workload import Size
from experiments.gpu_check.equality import decoding, loss_and_gradients, resuming
from experiments.gpu_check.findings import Findings
from experiments.gpu_check.small import ROWS, small_rows
from experiments.gpu_check.variants import attention_variants, decoding_speed, loss_variants


@dataclass(frozen=True, slots=True)
class Part:
    """One part: what it is called, the most seconds it may take, and what does it.

    Another process does it, so ``do`` is a function of a module, or a ``partial`` of one.
    """

    name: str
    seconds: float
    do: Callable[[torch.device], Findings]


def parts_of(device_type: str) -> list[Part]:
    """On a GPU the paper's models; on a CPU a rehearsal with the smallest, without the compiler."""
    if device_type == "cpu":
        return [
            Part("loss and gradients", 120, partial(loss_and_gradients, size="tiny")),
            Part("decoding", 120, partial(decoding, size="tiny", sentences=8)),
            Part("train tiny", 180, partial(_training, size="tiny", steps=1)),
            Part("resuming", 180, partial(resuming, size="tiny")),
            Part("decode news", 120, partial(decoding_speed, size="tiny", sentences=8, rounds=1)),
            Part("attention", 120, partial(attention_variants, size="tiny", lengths=(16,))),
            Part("rows of small", 120, partial(small_rows, rows=["base"], steps=2)),
            Part("loss", 120, partial(loss_variants, size="tiny")),
        ]
    return [
        Part("loss and gradients", 60, partial(loss_and_gradients, size="base")),
        Part("decoding", 60, partial(decoding, size="base", sentences=100)),
        Part("train base", 75, partial(_training, size="base", steps=24)),
        Part("train big", 90, partial(_training, size="big", steps=16)),
        Part("resuming", 90, partial(resuming, size="base")),
        Part("decode news", 60, partial(decoding_speed, size="base", sentences=3_003, rounds=3)),
        Part("attention", 60, partial(attention_variants, size="base", lengths=(16, 32, 64, 128))),
        Part("train base, compiled", 150, partial(_training, size="base", steps=24, compile=True)),
        Part("rows of small", 75, partial(small_rows, rows=list(ROWS), steps=40)),
        Part("loss", 75, partial(loss_variants, size="base")),
        Part("train big, compiled", 150, partial(_training, size="big", steps=16, compile=True)),
    ]


def _training(device: torch.device, size: Size, steps: int, *, compile: bool = False) -> Findings:
    from torch._dynamo.utils import counters  # takes seconds

    counters.clear()
    speed = measure_training(size, device, steps, compile=compile)
    findings = Findings(rows=speed.rows(), figures=asdict(speed))
    if compile:
        findings.figures["compiler"] = {kind: dict(counts) for kind, counts in counters.items()}
        graphs = counters["stats"]["unique_graphs"]
        findings.rows.append(("  graphs compiled", str(graphs)))
    return findings
