"""Dropout (section 5.4) with few random numbers on CPUs.

Plain form: ``torch.nn.Dropout``, up to which elements are dropped.
"""

from __future__ import annotations

from contextvars import ContextVar

import torch
import torch.nn.functional as F
from torch import Tensor, nn

_LEVELS = 2**16

# What CPU masks are drawn from; None stands for torch's default generator, which threads share.
dropout_generator: ContextVar[torch.Generator | None] = ContextVar("dropout", default=None)


class Dropout(nn.Module):
    """Zero each element with probability ``p`` while training and scale the rest by 1/(1-p).

    On CPUs each element takes 16 random bits, which meets ``p`` to within 2^-17: one 64-bit draw
    serves four elements. Torch draws once per element, which takes up to a fifth of a step.
    """

    def __init__(self, p: float) -> None:
        super().__init__()
        self.p = p

    def forward(self, x: Tensor) -> Tensor:
        """Any shape to the same shape."""
        if not self.training or self.p == 0.0:
            return x
        if x.device.type != "cpu" or torch.compiler.is_compiling():
            return F.dropout(x, self.p)
        dropped = min(round(self.p * _LEVELS), _LEVELS - 1)
        draws = torch.empty((x.numel() + 3) // 4, dtype=torch.int64)
        draws.random_(-(2**63), None, generator=dropout_generator.get())
        bits = draws.view(torch.int16)[: x.numel()].view(x.shape)
        keep = torch.ge(bits, dropped - _LEVELS // 2, out=torch.empty_like(x))
        return x * keep.mul_(_LEVELS / (_LEVELS - dropped))

    def extra_repr(self) -> str:
        return f"p={self.p}"
