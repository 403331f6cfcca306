"""A model's weights in the layout of other programs."""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor, nn

from transformer.config import BOS_ID, PAD_ID
from transformer.model.attention import MultiHeadAttention
from transformer.model.embeddings import Embedding

# Added to the logits of padding and begin, which our search never chooses either. fp16 can hold
# the number, and no logit outweighs it.
_NEVER = -1e4


class AttentionWeights(NamedTuple):
    """The matrices of an attention: ``(heads * width, d_model)``, ``output`` transposed."""

    query: Tensor
    key: Tensor
    value: Tensor
    output: Tensor


def attention_weights(attention: MultiHeadAttention, width: int) -> AttentionWeights:
    """The weights with queries, keys and values padded with zeros to ``width`` columns a head.

    Zeros change no product; the scale stays that of the true d_k.
    """
    heads, d_k, d_v = attention.num_heads, attention.d_k, attention.d_v
    key, value = copied(attention.key_value.weight).split([heads * d_k, heads * d_v])
    output = copied(attention.output.weight)
    return AttentionWeights(
        query=_widen_heads(copied(attention.query.weight), heads, width),
        key=_widen_heads(key, heads, width),
        value=_widen_heads(value, heads, width),
        output=_widen_heads(output.T, heads, width).T.contiguous(),
    )


def _widen_heads(weight: Tensor, heads: int, width: int) -> Tensor:
    """``(heads * narrow, columns)`` to ``(heads * width, columns)``, zeros below each head."""
    by_head = weight.unflatten(0, (heads, -1))
    return nn.functional.pad(by_head, (0, 0, 0, width - by_head.size(1))).flatten(0, 1)


def learned_positions(embedding: Embedding, count: int) -> Tensor | None:
    """``(count, d_model)``, the last position repeated as in our model; None for sinusoids."""
    if embedding.positions is None:
        return None
    index = torch.arange(count).clamp_(max=embedding.positions.size(0) - 1)
    return copied(embedding.positions)[index]


def output_bias(vocab_size: int) -> Tensor:
    """``(vocab_size,)``, to be added to the logits: rules out padding and begin of sentence."""
    bias = torch.zeros(vocab_size)
    bias[[PAD_ID, BOS_ID]] = _NEVER
    return bias


def copied(weight: Tensor) -> Tensor:
    """A copy on the CPU in fp32."""
    return weight.detach().to("cpu", torch.float32, copy=True)
