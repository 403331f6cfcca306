"""The layers of Table 1, made of torch's modules."""

from __future__ import annotations

from collections.abc import Callable

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from ablations.tables import table1 as paper
from ablations.tables.table1 import HEAD_WIDTH, KERNEL


class Layer(nn.Module):
    """A function from (batch, n, d) to the same shape, with the modules that have its weights."""

    def __init__(self, function: Callable[[Tensor], Tensor], *parts: nn.Module) -> None:
        super().__init__()
        self.function = function
        self.parts = nn.ModuleList(parts)

    def forward(self, x: Tensor) -> Tensor:
        return self.function(x)


def make_layer(name: str, d: int, gap: int = 1) -> Layer:
    """The layer of that name and width ``d``; ``gap`` is the dilation of a dilated convolution."""
    around = KERNEL // 2
    match name:
        case paper.ATTENTION:
            return Layer(self_attention)
        case paper.RESTRICTED:
            return Layer(lambda x: restricted_attention(x, paper.NEIGHBOURHOOD))
        case paper.PROJECTED:
            attention = nn.MultiheadAttention(d, d // HEAD_WIDTH, batch_first=True)
            return Layer(lambda x: attention(x, x, x, need_weights=False)[0], attention)
        case paper.RECURRENT:
            lstm = nn.LSTM(d, d, batch_first=True)
            return Layer(lambda x: lstm(x)[0], lstm)
        case paper.CONVOLUTION:
            convolution = nn.Sequential(nn.Conv1d(d, d, KERNEL, padding=around))
        case paper.SEPARABLE:
            by_channel = nn.Conv1d(d, d, KERNEL, padding=around, groups=d)
            convolution = nn.Sequential(by_channel, nn.Conv1d(d, d, 1))
        case paper.DILATED:
            # It only looks back, as in a decoder: wide gaps on both sides would leave the sequence.
            before = nn.ConstantPad1d((gap * (KERNEL - 1), 0), 0.0)
            convolution = nn.Sequential(before, nn.Conv1d(d, d, KERNEL, dilation=gap))
        case _:
            raise ValueError(f"there is no layer {name}")
    return Layer(lambda x: convolution(x.mT).mT, convolution)


def self_attention(x: Tensor) -> Tensor:
    """softmax(QKᵀ/√d_k)V (equation 1) without projections: Q, K and V are the input itself.

    Heads have width 64: a larger d has more heads, as in the paper's models, not wider ones.
    """
    heads = _split(x)
    return _join(F.scaled_dot_product_attention(heads, heads, heads))


def restricted_attention(x: Tensor, r: int) -> Tensor:
    """Self-attention of each position to the r positions around it (section 4).

    Computed in blocks of r queries against the 2r keys that any of them can reach, with a mask for
    the half that each cannot reach: twice the FLOPs of r·n·d, and never an n-by-n matrix.
    """
    n = x.shape[-2]
    blocks = -(-n // r)
    fill = blocks * r - n
    around = (r // 2, fill + r // 2)
    heads = _split(x).flatten(0, 1)
    queries = F.pad(heads, (0, 0, 0, fill)).unflatten(1, (blocks, r))
    keys = F.pad(heads, (0, 0, *around)).unfold(1, 2 * r, r).mT
    exists = F.pad(x.new_ones(n, dtype=torch.bool), around).unfold(0, 2 * r, r)[:, None]
    mask = x.new_ones(r, 2 * r, dtype=torch.bool).triu().tril(r - 1) & exists
    # A query that only fills the last block may have no key, but a softmax needs one.
    mask |= ~mask.any(-1, keepdim=True)
    found = F.scaled_dot_product_attention(queries, keys, keys, attn_mask=mask[None])
    return _join(found.flatten(1, 2)[:, :n].unflatten(0, (len(x), -1)))


def _split(x: Tensor) -> Tensor:
    """(batch, n, d) as heads: (batch, h, n, 64)."""
    return x.unflatten(-1, (-1, HEAD_WIDTH)).transpose(1, 2)


def _join(heads: Tensor) -> Tensor:
    return heads.transpose(1, 2).flatten(2)
