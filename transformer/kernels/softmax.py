"""A fast softmax over short rows on CPUs.

Plain form: ``softmax_base2(x) == torch.softmax(x * math.log(2), -1)``.
"""

from __future__ import annotations

import math
from typing import Any, cast

import torch
from torch import Tensor
from torch.autograd import Function


def softmax_base2(scores: Tensor) -> Tensor:
    """2^x / sum(2^x) over the last dimension, at least in fp32.

    Powers of two, because on CPUs exp(-inf), which every masked score needs, takes twenty times
    as long as exp of a finite number.
    """
    wide = torch.promote_types(scores.dtype, torch.float32)
    return cast(Tensor, _SoftmaxBase2.apply(scores.to(wide)))


class _SoftmaxBase2(Function):
    @staticmethod
    def forward(ctx: Any, scores: Tensor) -> Tensor:
        weights = (scores - scores.amax(-1, keepdim=True)).exp2_()
        weights.div_(weights.sum(-1, keepdim=True))
        ctx.save_for_backward(weights)
        return weights

    @staticmethod
    def backward(ctx: Any, *grad_outputs: Any) -> Tensor:
        (weights,) = ctx.saved_tensors
        weighted: Tensor = grad_outputs[0] * weights
        weighted.addcmul_(weights, weighted.sum(-1, keepdim=True), value=-1)
        return weighted.mul_(math.log(2.0))
