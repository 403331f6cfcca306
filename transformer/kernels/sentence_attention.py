"""interim"""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor


class Sentences(NamedTuple):
    seg_q: Tensor
    seg_k: Tensor
    cu_q: Tensor
    cu_k: Tensor
    causal: bool


def attend_within_sentences(
    query: Tensor, key: Tensor, value: Tensor, sentences: Sentences
) -> Tensor:
    q, k, v = (x.squeeze(0) for x in (query, key, value))
    scores = q @ k.transpose(1, 2) * q.size(-1) ** -0.5
    seen = sentences.seg_q[:, None] == sentences.seg_k[None, :]
    if sentences.causal:
        seen = seen.tril()
    none = ~seen.any(1)
    weights = scores.masked_fill(~seen, -torch.inf).softmax(-1).masked_fill(none[:, None], 0.0)
    return (weights.to(v.dtype) @ v).unsqueeze(0)


def can_serve(device: torch.device, d_k: int, d_v: int) -> bool:
    return True
