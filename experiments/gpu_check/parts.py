"""The parts of the check, the most valuable ones first."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import asdict, dataclass
from functools import partial

import torch

from experiments.benchmark.training import measure_training
from experiments.benchmark.workload import Size
from experiments.gpu_check.equality import decoding, loss_and_gradients
from experiments.gpu_check.findings import Findings
from experiments.gpu_check.resuming import resuming
from experiments.gpu_check.small import ROWS, small_rows
from experiments.gpu_check.variants import attention_variants, decoding_speed, loss_variants
from experiments.run.devices import device_name, nominal_peak

# After this, a compiled model is timed on the shapes that it is compiled for by then.
_COMPILING_SECONDS = 75.0


@dataclass(frozen=True, slots=True)
class Part:
    """A part's name, its time limit in seconds, and the function that adds to its findings.

    It is sent to another process, so ``run`` is a function of a module, or a ``partial`` of one.
    """

    name: str
    seconds: float
    run: Callable[[torch.device, Findings], None]


def parts_of(device_type: str) -> list[Part]:
    """On a GPU the paper's models; on a CPU a rehearsal with the smallest, without the compiler."""
    if device_type == "cpu":
        return [
            Part("loss and gradients", 120, partial(loss_and_gradients, size="tiny")),
            Part("decoding", 120, partial(decoding, size="tiny", sentences=8)),
            Part("train tiny", 180, partial(training, size="tiny", steps=1)),
            Part("resuming", 180, partial(resuming, size="tiny")),
            Part("decode news", 120, partial(decoding_speed, size="tiny", sentences=8, rounds=1)),
            Part("attention", 120, partial(attention_variants, size="tiny", lengths=(16,))),
            Part("rows of small", 120, partial(small_rows, rows=["base"], batches=2)),
            Part("loss", 120, partial(loss_variants, size="tiny")),
        ]
    return [
        Part("loss and gradients", 60, partial(loss_and_gradients, size="base")),
        Part("decoding", 60, partial(decoding, size="base", sentences=100)),
        Part("train base", 90, partial(training, size="base", steps=24)),
        Part("train big", 100, partial(training, size="big", steps=16)),
        Part("resuming", 120, partial(resuming, size="base")),
        Part("decode news", 60, partial(decoding_speed, size="base", sentences=3_003, rounds=3)),
        Part("attention", 60, partial(attention_variants, size="base", lengths=(16, 32, 64, 128))),
        Part("loss", 75, partial(loss_variants, size="base")),
        Part("rows of small", 120, partial(small_rows, rows=list(ROWS), batches=8)),
        Part("train base, compiled", 180, partial(compiled_training, size="base", steps=24)),
        Part("train big, compiled", 180, partial(compiled_training, size="big", steps=16)),
    ]


def training(
    device: torch.device, findings: Findings, size: Size, steps: int, *, compile: bool = False
) -> None:
    """The benchmark's training; its MFU is given of the nominal peak as well."""
    speed = measure_training(
        size, device, steps, compile=compile, warm_up_seconds=_COMPILING_SECONDS
    )
    findings.rows.update({name: tuple(cells) for name, *cells in speed.rows()})
    findings.figures.update(asdict(speed))
    precision = "bf16" if speed.precision == "bf16" else "fp32"
    nominal = nominal_peak(device_name(device), precision)
    if nominal is not None:
        mfu = 1e12 * speed.tflops / nominal
        name = f"  MFU of the nominal {nominal / 1e12:.0f} TFLOP/s"
        findings.add(name, f"{mfu:.1%}", figures=mfu)
    findings.report(findings)


def compiled_training(device: torch.device, findings: Findings, size: Size, steps: int) -> None:
    """The same with ``--compile``, and how many graphs the compiler made."""
    from torch._dynamo.utils import counters  # takes seconds

    counters.clear()
    training(device, findings, size, steps, compile=True)
    graphs, shapes = counters["stats"]["unique_graphs"], findings.figures["shapes"]
    findings.figures["compiler"] = {kind: dict(counts) for kind, counts in counters.items()}
    findings.add("  graphs compiled", f"{graphs} for {shapes} shapes", figures=graphs)
