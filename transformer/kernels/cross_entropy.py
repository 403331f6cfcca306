"""Output projection and smoothed cross-entropy without full logits.

Plain form: ``F.cross_entropy(states @ weight.T, targets, label_smoothing=..., reduction="sum")``.
"""

from __future__ import annotations

from typing import Any, cast

import torch
import torch.nn.functional as F
from torch import Tensor
from torch.autograd import Function

from transformer.config import PAD_ID

# Elements of logits that exist at a time: few enough for a CPU's cache, enough to fill a GPU.
_CPU_ELEMENTS = 2**21
_GPU_ELEMENTS = 2**28
# With bf16 on a CPU, oneDNN spends about 2 ms and 0.7 MB on each product of a new shape, so the
# last piece is padded to one of this many sizes. Other products cost nothing to set up.
_SIZES = 8


def chunked_cross_entropy(
    states: Tensor,
    weight: Tensor,
    targets: Tensor,
    smoothing: float,
    vocab_size: int,
    padded: bool = False,
) -> tuple[Tensor, Tensor]:
    """Sums over ``targets`` of the smoothed loss and of the negative log-likelihood.

    With ``z = Wh`` the smoothed loss is ``logsumexp(z) - (1 - ε) z[y] - ε mean(z)``, and
    ``mean(z) = h · mean(W)``. Arguments as for
    :func:`transformer.training.loss.smoothed_cross_entropy`.
    """
    device = states.device.type
    dtype = torch.get_autocast_dtype(device) if torch.is_autocast_enabled(device) else states.dtype
    result = _ChunkedCrossEntropy.apply(
        states, weight, targets, smoothing, vocab_size, padded, dtype, torch.is_grad_enabled()
    )
    return cast(tuple[Tensor, Tensor], result)


class _ChunkedCrossEntropy(Function):
    """Computes the gradients in the forward pass, while each piece of the logits exists."""

    @staticmethod
    def forward(
        ctx: Any,
        states: Tensor,
        weight: Tensor,
        targets: Tensor,
        smoothing: float,
        vocab_size: int,
        padded: bool,
        dtype: torch.dtype,
        with_gradient: bool,
    ) -> tuple[Tensor, Tensor]:
        wide = torch.promote_types(dtype, torch.float32)
        is_real = targets.ne(PAD_ID)[:, None] if padded else None
        if is_real is not None:
            states = states * is_real  # so that padding adds nothing to the gradient of weights
        h_all, w = states.to(dtype), weight.to(dtype)
        grad_states = torch.empty_like(h_all)
        grad_weight = torch.zeros_like(weight)
        log_z_sum, target_logit_sum = states.new_zeros(2, dtype=wide).unbind()
        rows = max(1, (_GPU_ELEMENTS if states.is_cuda else _CPU_ELEMENTS) // weight.size(0))
        multiple = 1
        if dtype == torch.bfloat16 and states.device.type == "cpu":
            multiple = max(1, rows // _SIZES)
        for start in range(0, targets.numel(), rows):
            part = slice(start, start + rows)
            h, y = h_all[part], targets[part, None]
            count = len(h)
            if padding := min(-count % multiple, rows - count):
                h, y = F.pad(h, (0, 0, 0, padding)), F.pad(y, (0, 0, 0, padding))
            logits = (h @ w.t()).to(wide)
            logits[:, vocab_size:] = -torch.inf  # rows that pad the matrix get probability 0
            target_logit_sum += logits.gather(1, y)[:count].sum()
            largest = logits.amax(-1, keepdim=True)
            # exp(z) up to a factor per row. Dividing the narrow operands by the row sums, instead
            # of the wide matrix, turns these into probabilities.
            powers = logits.sub_(largest).exp_()
            total = powers.sum(-1, keepdim=True)
            log_z = (largest + total.log())[:count]
            log_z_sum += (log_z if is_real is None else log_z * is_real[part]).sum()
            if with_gradient:
                powers.scatter_add_(1, y, (smoothing - 1.0) * total)
                gradient = powers.to(dtype)
                grad_states[part] = ((gradient @ w) / total)[:count]
                grad_weight += gradient.t() @ (h / total).to(dtype)
        states_sum, weight_mean = states.to(wide).sum(0), weight[:vocab_size].to(wide).mean(0)
        if with_gradient:
            # The uniform share of ε is the same for every logit: two vectors, not a matrix.
            grad_states -= smoothing * weight_mean.to(dtype)
            if is_real is not None:
                grad_states *= is_real
            grad_weight[:vocab_size] -= (smoothing / vocab_size * states_sum).to(weight.dtype)
            ctx.save_for_backward(grad_states.to(states.dtype), grad_weight)
        nll = log_z_sum - target_logit_sum
        smoothed = nll + smoothing * (target_logit_sum - states_sum @ weight_mean)
        ctx.mark_non_differentiable(nll)
        return smoothed, nll

    @staticmethod
    def backward(ctx: Any, *grad_outputs: Any) -> tuple[Tensor | None, ...]:
        grad_smoothed: Tensor = grad_outputs[0]
        grad_states, grad_weight = ctx.saved_tensors
        scale = grad_smoothed.to(grad_states.dtype)
        return grad_states * scale, grad_weight * grad_smoothed, *(None,) * 6
