"""The layers of Table 1 from torch's own parts."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from ablations.tables import table1 as paper
from ablations.tables.table1 import HEAD_WIDTH, KERNEL


def make_layer(name: str, d: int, device: torch.device | None = None) -> nn.Module:
    """The layer of that name with input and output of width ``d``."""
    around = KERNEL // 2
    makers = {
        paper.ATTENTION: SelfAttention,
        paper.RECURRENT: lambda: Recurrent(d),
        paper.CONVOLUTION: lambda: Convolution(nn.Conv1d(d, d, KERNEL, padding=around)),
        paper.SEPARABLE: lambda: Convolution(
            nn.Conv1d(d, d, KERNEL, padding=around, groups=d), nn.Conv1d(d, d, 1)
        ),
        paper.RESTRICTED: lambda: RestrictedAttention(paper.NEIGHBOURHOOD),
        paper.PROJECTED: lambda: ProjectedAttention(d),
    }
    return makers[name]().to(device)


class SelfAttention(nn.Module):
    """softmax(QKᵀ/√d_k)V with heads of width 64 (equation 1), for which Table 1 has n²·d.

    Queries, keys and values are the input itself: :class:`ProjectedAttention` adds the projections.
    As d grows there are more heads, as in the paper's models, not wider ones.
    """

    def forward(self, x: Tensor) -> Tensor:
        heads = _split(x)
        return _join(F.scaled_dot_product_attention(heads, heads, heads))


class ProjectedAttention(nn.Module):
    """``nn.MultiheadAttention``: attention with the four projections of section 3.2.2."""

    def __init__(self, d: int) -> None:
        super().__init__()
        self.attention = nn.MultiheadAttention(d, d // HEAD_WIDTH, batch_first=True)

    def forward(self, x: Tensor) -> Tensor:
        return self.attention(x, x, x, need_weights=False)[0]


class RestrictedAttention(nn.Module):
    """Each position attends to the r positions around it (section 4), without projections.

    Computed in blocks of r queries against the 2r keys that any of them can reach, with a mask for
    the half that is out of reach of each: twice the products of r·n·d, and never n² of them.
    """

    def __init__(self, r: int) -> None:
        super().__init__()
        self.r = r

    def forward(self, x: Tensor) -> Tensor:
        r, n = self.r, x.shape[-2]
        blocks = -(-n // r)
        fill = blocks * r - n
        heads = _split(x).flatten(0, 1)
        queries = F.pad(heads, (0, 0, 0, fill)).unflatten(1, (blocks, r))
        keys = F.pad(heads, (0, 0, r // 2, fill + r // 2)).unfold(1, 2 * r, r).mT
        mask = self._reach(n, blocks, x.device)
        found = F.scaled_dot_product_attention(queries, keys, keys, attn_mask=mask)
        return _join(found.flatten(1, 2)[:, :n].unflatten(0, (len(x), -1)))

    def _reach(self, n: int, blocks: int, device: torch.device) -> Tensor:
        """True for the keys of its window that a query attends to: (1, blocks, r, 2r)."""
        r = self.r
        start = r * torch.arange(blocks, device=device)[:, None, None]
        query = start + torch.arange(r, device=device)[:, None]
        key = start - r // 2 + torch.arange(2 * r, device=device)
        near = (key >= query - r // 2) & (key < query + r // 2)
        # A query that only fills the last block attends to anything: a softmax needs one key.
        return (near & ((key >= 0) & (key < n) | (query >= n)))[None]


class Recurrent(nn.Module):
    """``nn.LSTM`` of one layer and one direction."""

    def __init__(self, d: int) -> None:
        super().__init__()
        self.lstm = nn.LSTM(d, d, batch_first=True)

    def forward(self, x: Tensor) -> Tensor:
        return self.lstm(x)[0]


class Convolution(nn.Sequential):
    """Convolutions over the positions, one after another."""

    def forward(self, input: Tensor) -> Tensor:
        return super().forward(input.mT).mT


def _split(x: Tensor) -> Tensor:
    """(batch, n, d) as heads: (batch, h, n, 64)."""
    return x.unflatten(-1, (-1, HEAD_WIDTH)).transpose(1, 2)


def _join(heads: Tensor) -> Tensor:
    return heads.transpose(1, 2).flatten(2)
