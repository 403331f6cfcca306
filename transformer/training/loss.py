"""The loss of a batch: label-smoothed cross-entropy (section 5.4)."""

from __future__ import annotations

import torch
from torch import Tensor

from transformer.config import PAD_ID
from transformer.kernels.cross_entropy import chunked_cross_entropy
from transformer.model.encoder_decoder import Transformer
from transformer.model.packed import PackedTokens


def states_and_targets(
    model: Transformer,
    src: Tensor | PackedTokens,
    inputs: Tensor | PackedTokens,
    targets: Tensor,
    real_targets: Tensor | None = None,
) -> tuple[Tensor, Tensor]:
    """The decoder's output ``(targets, d_model)`` and the targets ``(targets,)``.

    Args:
        src: ``(batch, src)``
        inputs: ``(batch, tgt)``, the decoder's
        targets: ``(batch, tgt)``, the word-piece after each input
        real_targets: indices of ``targets.flatten()`` that are not padding; None keeps padding, so
            that all batches of a shape launch the same operations
    """
    states, targets = model.states(src, inputs).flatten(0, 1), targets.flatten()
    if real_targets is None:
        return states, targets
    return states.index_select(0, real_targets), targets.index_select(0, real_targets)


def smoothed_cross_entropy(
    states: Tensor,
    weight: Tensor,
    targets: Tensor,
    smoothing: float,
    vocab_size: int,
    padded: bool = False,
) -> tuple[Tensor, Tensor]:
    """Sums over all targets of the smoothed loss and of the plain negative log-likelihood.

    The smoothed target gives 1 - ε to the correct word-piece and spreads ε evenly over all.

    Args:
        states: ``(tokens, d_model)``; under autocast the products run in its precision
        weight: ``(rows, d_model)``; rows from ``vocab_size`` on are padding: they get no
            probability and no gradient
        targets: ``(tokens,)``
        smoothing: ε
        vocab_size: the number of word-pieces
        padded: whether some targets are padding, which adds nothing to either sum

    Returns:
        ``(smoothed, nll)``, two scalars in nats; only the first carries a gradient.
    """
    if not torch.compiler.is_compiling():
        return chunked_cross_entropy(states, weight, targets, smoothing, vocab_size, padded)
    # A compiler fuses everything after the product, which is faster than the kernel's pieces.
    logits = (states @ weight.t())[:, :vocab_size]
    logits = logits.to(torch.promote_types(logits.dtype, torch.float32))
    log_z = logits.logsumexp(-1)
    # Not gather, whose gradient a compiler writes as one more matrix of this size.
    is_target = torch.arange(vocab_size, device=logits.device) == targets[:, None]
    target_logit = torch.where(is_target, logits, 0.0).sum(-1)
    nll = log_z - target_logit
    smoothed = nll + smoothing * (target_logit - logits.mean(-1))
    if padded:
        is_real = targets.ne(PAD_ID)
        nll, smoothed = torch.where(is_real, nll, 0.0), torch.where(is_real, smoothed, 0.0)
    return smoothed.sum(), nll.sum().detach()
