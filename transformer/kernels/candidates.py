"""Find the likeliest next word-pieces without sorting a vocabulary.

Plain form: ``logits.log_softmax(-1).topk(count)`` with padding and begin-of-sentence masked.
"""

from __future__ import annotations

from collections.abc import Callable

import torch
import torch.nn.functional as F
from torch import Tensor

from transformer.config import BOS_ID, PAD_ID

# The largest values of a row are looked for in the blocks with the largest maxima: computing a
# block's maximum takes a tenth of the time of a top-k over its elements.
_BLOCK = 64


def best_continuations(
    logits: Tensor, count: int, constrain: Callable[[Tensor], Tensor] | None = None
) -> tuple[Tensor, Tensor]:
    """The ``count`` likeliest word-pieces, best first; never padding or begin-of-sentence.

    Args:
        logits: ``(..., vocab_size)`` in fp32; overwritten
        count: at most ``vocab_size``
        constrain: maps the log-probabilities of all word-pieces to those that are used

    Returns:
        Their log-probabilities under the softmax over all word-pieces but those two, and their ids,
        both ``(..., count)``.
    """
    # One by one, as a list of indices would be copied to the device.
    logits[..., PAD_ID] = logits[..., BOS_ID] = -torch.inf
    if constrain is not None:
        return _topk(constrain(logits.log_softmax(-1)), count)
    best, ids = _topk(logits, count)
    maximum = best[..., :1]
    total = logits.sub_(maximum).exp_().sum(-1, keepdim=True)
    return best - maximum - total.log_(), ids


def _topk(values: Tensor, count: int) -> tuple[Tensor, Tensor]:
    """``values.topk(count)``, whose elements lie in at most ``count`` blocks."""
    blocks = values.size(-1) // _BLOCK
    if blocks <= 2 * count:
        return values.topk(count)
    end = blocks * _BLOCK
    blocked = values[..., :end].unflatten(-1, (blocks, _BLOCK))
    chosen = blocked.amax(-1).topk(count).indices
    held = blocked.gather(-2, chosen.unsqueeze(-1).expand(*chosen.shape, _BLOCK))
    best, index = torch.cat([held.flatten(-2), values[..., end:]], dim=-1).topk(count)
    # The elements that follow the last block count as one more.
    block = F.pad(chosen, (0, 1), value=blocks).gather(-1, index // _BLOCK)
    return best, torch.add(index % _BLOCK, block, alpha=_BLOCK)
