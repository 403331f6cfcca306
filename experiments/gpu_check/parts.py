"""The parts of the check, those of most worth first."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import asdict, dataclass
from functools import partial
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import torch

    from experiments.benchmark.workload import Size
    from experiments.gpu_check.findings import Findings
    from transformer.config import Precision


@dataclass(frozen=True, slots=True)
class Part:
    """One part: what it is called, the most seconds it may take, and what does it.

    It is done in a process of its own, so ``do`` is a function of a module, or a ``partial`` of one.
    """

    name: str
    seconds: float
    do: Callable[[torch.device], Findings]


def parts_of(device_type: str) -> list[Part]:
    """On a GPU the paper's models, some 7 minutes on an H100 (estimated); on a CPU a rehearsal with
    the smallest, without the compiler.
    """
    if device_type == "cpu":
        return [
            Part("loss and gradients", 60, partial(_equality, "tiny", ["fp32"])),
            Part("decoding", 60, partial(_decoding, "tiny", 8)),
            Part("resuming", 120, partial(_resuming, "tiny")),
            Part("train tiny", 120, partial(_training, "tiny", 1, compile=False)),
            Part("rows of small", 60, partial(_small, 1, 1)),
            Part("decode news", 60, partial(_decoding_speed, "tiny", 8, 1)),
            Part("attention", 60, partial(_attention, "tiny", (16,))),
            Part("loss", 60, partial(_loss, "tiny")),
        ]
    return [
        Part("loss and gradients", 60, partial(_equality, "base", ["fp32", "bf16"])),
        Part("decoding", 60, partial(_decoding, "base", 100)),
        Part("train base", 75, partial(_training, "base", 24, compile=False)),
        Part("train big", 90, partial(_training, "big", 16, compile=False)),
        Part("resuming", 90, partial(_resuming, "base")),
        Part("decode news", 60, partial(_decoding_speed, "base", 3_003, 3)),
        Part("attention", 60, partial(_attention, "base", (16, 32, 64, 128))),
        Part("train base, compiled", 150, partial(_training, "base", 24, compile=True)),
        Part("rows of small", 75, partial(_small, None, 40)),
        Part("loss", 75, partial(_loss, "base")),
        Part("train big, compiled", 150, partial(_training, "big", 16, compile=True)),
    ]


# What follows imports torch, and runs in the process that does the parts.


def _equality(size: Size, precisions: list[Precision], device: torch.device) -> Findings:
    from experiments.gpu_check.equality import loss_and_gradients

    return loss_and_gradients(device, size, precisions)


def _decoding(size: Size, sentences: int, device: torch.device) -> Findings:
    from experiments.gpu_check.equality import decoding

    return decoding(device, size, sentences)


def _resuming(size: Size, device: torch.device) -> Findings:
    from experiments.gpu_check.equality import resuming

    return resuming(device, size)


def _training(size: Size, steps: int, device: torch.device, *, compile: bool) -> Findings:
    from experiments.benchmark.training import measure_training
    from experiments.gpu_check.findings import Findings

    speed = measure_training(size, device, steps, compile=compile)
    return Findings(rows=speed.rows(), figures=asdict(speed))


def _small(rows: int | None, steps: int, device: torch.device) -> Findings:
    from experiments.gpu_check.small import ROWS, small_rows

    return small_rows(device, list(ROWS)[:rows], steps)


def _decoding_speed(size: Size, sentences: int, rounds: int, device: torch.device) -> Findings:
    from experiments.gpu_check.variants import decoding_speed

    return decoding_speed(device, size, sentences, rounds)


def _attention(size: Size, lengths: tuple[int, ...], device: torch.device) -> Findings:
    from experiments.gpu_check.variants import attention_variants

    return attention_variants(device, size, lengths)


def _loss(size: Size, device: torch.device) -> Findings:
    from experiments.gpu_check.variants import loss_variants

    return loss_variants(device, size)
