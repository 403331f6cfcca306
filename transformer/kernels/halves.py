"""The two halves of a batch on threads of their own, for CPUs.

Two halves wait for each other once a step, operations on all cores after each. More parts than
two would mostly wait for Python's interpreter, so further cores share the work inside each half.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, cast

import torch
from torch import Tensor
from torch.autograd import Function

from transformer.config import PAD_ID
from transformer.data.batches import Batch
from transformer.kernels.dropout import drawing_from
from transformer.kernels.threads import map_on_threads

Loss = Callable[[Batch], tuple[Tensor, Tensor]]


def loss_of_halves(loss: Loss, batch: Batch, parameters: Sequence[Tensor]) -> tuple[Tensor, Tensor]:
    """What ``loss(batch)`` gives, and its gradients, for a loss that is a sum over sentences.

    The gradients are worked out at once, so only ``parameters`` can have any. The sums are taken
    in a fixed order, and each half draws its random numbers from a generator of its own, seeded
    from torch's: the outcome does not depend on which thread is faster.

    Args:
        loss: gives the loss that is trained on and one without a gradient, both summed
        batch: of two sentences or more, on the CPU
        parameters: all that are trained; the loss depends on each
    """
    return cast(tuple[Tensor, Tensor], _Halves.apply(loss, batch, *parameters))


class _Halves(Function):
    @staticmethod
    def forward(ctx: Any, loss: Loss, batch: Batch, *parameters: Tensor) -> tuple[Tensor, Tensor]:
        seeds = torch.randint(2**62, (2,)).tolist()

        def differentiate(half: tuple[Batch, int]) -> tuple[Tensor, Tensor, tuple[Tensor, ...]]:
            part, seed = half
            with drawing_from(torch.Generator().manual_seed(seed)):
                value, other = loss(part)
                return value.detach(), other, torch.autograd.grad(value, parameters)

        first, second = map_on_threads(
            differentiate, zip(split(batch), seeds, strict=True), threads=2
        )
        ctx.save_for_backward(*(a.add_(b) for a, b in zip(first[2], second[2], strict=True)))
        other = first[1] + second[1]
        ctx.mark_non_differentiable(other)
        return first[0] + second[0], other

    @staticmethod
    def backward(ctx: Any, *grad_outputs: Any) -> tuple[Tensor | None, ...]:
        return (None, None, *(gradient * grad_outputs[0] for gradient in ctx.saved_tensors))


def split(batch: Batch) -> tuple[Batch, Batch]:
    """The shorter and the longer sentences, about as many word-pieces in both, trimmed.

    The first half holds a multiple of a sixteenth of the sentences: each new shape costs time.
    """
    lengths = batch.src.ne(PAD_ID).sum(1) + batch.tgt.ne(PAD_ID).sum(1)
    lengths, order = lengths.sort(stable=True)
    total = lengths.cumsum(0)
    multiple = max(1, len(order) // 16)
    shorter = multiple * round(int((total <= total[-1] / 2).sum()) / multiple)
    shorter = min(max(multiple, shorter), len(order) - 1)
    first, second = (
        Batch(
            src=_trim(batch.src[rows]),
            tgt=_trim(batch.tgt[rows]),
            source_tokens=batch.source_tokens,
            target_tokens=batch.target_tokens,
            number=batch.number,
        )
        for rows in (order[:shorter], order[shorter:])
    )
    return first, second


def _trim(tokens: Tensor) -> Tensor:
    """Without the columns that hold padding alone."""
    return tokens[:, : int(tokens.ne(PAD_ID).sum(1).max())]
