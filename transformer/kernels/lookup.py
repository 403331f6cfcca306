"""Look up rows, with a gradient that repeats exactly.

Plain form: ``F.embedding(index, table)``.
"""

from __future__ import annotations

from typing import Any, cast

import torch
import torch.nn.functional as F
from torch import Tensor
from torch.autograd import Function


def lookup(table: Tensor, index: Tensor) -> Tensor:
    """``(rows, width)`` and an index ``(…)`` to ``(…, width)``."""
    if not torch.compiler.is_compiling():
        return F.embedding(index, table)
    return cast(Tensor, _Lookup.apply(table, index))


class _Lookup(Function):
    """A lookup that a compiler fuses, except for its gradient: inductor would sum that by atomic
    additions on a GPU, in another order each time, so that training would not resume bit for bit.
    """

    @staticmethod
    def forward(ctx: Any, table: Tensor, index: Tensor) -> Tensor:
        ctx.rows = table.size(0)
        ctx.save_for_backward(index)
        return F.embedding(index, table)

    @staticmethod
    def backward(ctx: Any, *grad_outputs: Any) -> tuple[Tensor, None]:
        (index,) = ctx.saved_tensors
        return _table_gradient(grad_outputs[0].contiguous(), index, ctx.rows), None


# A compiler does not look inside, and so calls torch's own kernel.
@torch.library.custom_op("transformer::table_gradient", mutates_args=())
def _table_gradient(gradient: Tensor, index: Tensor, rows: int) -> Tensor:
    return torch.ops.aten.embedding_dense_backward(gradient, index, rows, -1, False)


@_table_gradient.register_fake
def _(gradient: Tensor, index: Tensor, rows: int) -> Tensor:
    return gradient.new_empty(rows, gradient.size(-1))
