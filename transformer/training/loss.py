"""Label-smoothed cross-entropy over the shared vocabulary (section 5.4)."""

from __future__ import annotations

import torch
from torch import Tensor

from transformer.kernels.cross_entropy import chunked_cross_entropy


def smoothed_cross_entropy(
    states: Tensor, weight: Tensor, targets: Tensor, smoothing: float, vocab_size: int
) -> tuple[Tensor, Tensor]:
    """Sums over all targets of the smoothed loss and of the plain negative log-likelihood.

    The smoothed target gives 1 - ε to the correct word-piece and spreads ε evenly over all.

    Args:
        states: ``(tokens, d_model)``; under autocast the products run in its precision
        weight: ``(rows, d_model)``; rows from ``vocab_size`` on are padding: they get no
            probability and no gradient
        targets: ``(tokens,)``, without padding
        smoothing: ε
        vocab_size: the number of word-pieces

    Returns:
        ``(smoothed, nll)``, two scalars in nats; only the first carries a gradient.
    """
    if not torch.compiler.is_compiling():
        return chunked_cross_entropy(states, weight, targets, smoothing, vocab_size)
    # A compiler fuses everything after the product, which is faster than the kernel's pieces.
    logits = (states @ weight.t())[:, :vocab_size]
    logits = logits.to(torch.promote_types(logits.dtype, torch.float32))
    log_z = logits.logsumexp(-1)
    # Not gather, whose gradient a compiler writes as one more matrix of this size.
    is_target = torch.arange(vocab_size, device=logits.device) == targets[:, None]
    target_logit = torch.where(is_target, logits, 0.0).sum(-1)
    nll = (log_z - target_logit).sum()
    smoothed = nll + smoothing * (target_logit - logits.mean(-1)).sum()
    return smoothed, nll.detach()
