"""Train the halves of a batch on two threads.

Plain form: ``loss(batch)`` and its gradients, up to rounding and the masks of dropout. Two halves
wait for each other once per step; operations that use all cores wait after each operation. More
than two parts would mostly wait for Python's interpreter, so further cores share the work within
each half.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, TypeVar, cast

import torch
from torch import Tensor
from torch.autograd import Function

from transformer.kernels.dropout import dropout_generator
from transformer.kernels.threads import map_on_threads

Half = TypeVar("Half")


def loss_of_halves(
    loss: Callable[[Half], tuple[Tensor, Tensor]],
    halves: tuple[Half, Half],
    parameters: Sequence[Tensor],
) -> tuple[Tensor, Tensor]:
    """The sum of ``loss`` over both halves, with gradients.

    The gradients are computed at once, so only ``parameters`` can receive any. The sums are taken
    in a fixed order, and each half draws its dropout masks from its own generator, seeded from
    torch's: the result does not depend on which thread is faster.

    Args:
        loss: returns the loss to train on and one without a gradient, both summed over a half
        halves: the two parts of a batch, on the CPU
        parameters: all trained parameters; those that the loss does not use get zeros
    """
    return cast(tuple[Tensor, Tensor], _LossOfHalves.apply(loss, halves, *parameters))


class _LossOfHalves(Function):
    @staticmethod
    def forward(
        ctx: Any,
        loss: Callable[[Half], tuple[Tensor, Tensor]],
        halves: tuple[Half, Half],
        *parameters: Tensor,
    ) -> tuple[Tensor, Tensor]:
        seeds = torch.randint(2**62, (2,)).tolist()

        def differentiate(half: tuple[Half, int]) -> tuple[Tensor, Tensor, tuple[Tensor, ...]]:
            part, seed = half
            dropout_generator.set(torch.Generator().manual_seed(seed))
            value, other = loss(part)
            gradients = torch.autograd.grad(
                value, parameters, allow_unused=True, materialize_grads=True
            )
            return value.detach(), other, gradients

        first, second = map_on_threads(differentiate, zip(halves, seeds, strict=True), threads=2)
        # Not in place: two parameters may share the memory of a gradient, as those of p + q do.
        ctx.save_for_backward(*(a + b for a, b in zip(first[2], second[2], strict=True)))
        other = first[1] + second[1]
        ctx.mark_non_differentiable(other)
        return first[0] + second[0], other

    @staticmethod
    def backward(ctx: Any, *grad_outputs: Any) -> tuple[Tensor | None, ...]:
        return (None, None, *(gradient * grad_outputs[0] for gradient in ctx.saved_tensors))
