"""Scaled dot-product and multi-head attention (section 3.2).

Masks are additive: 0 where a query may look at a key and -inf where it may not. They broadcast
to ``(batch, num_heads, queries, keys)``.
"""

from __future__ import annotations

import math
from typing import Any, cast

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.autograd import Function

# Steps of decoding before a cache grows for the first time; then it doubles.
_FIRST_CAPACITY = 32


def scaled_dot_product_attention(query: Tensor, key: Tensor, value: Tensor, mask: Tensor) -> Tensor:
    """softmax(QK^T / sqrt(d_k)) V, equation 1.

    Args:
        query: ``(batch, num_heads, queries, d_k)``
        key: ``(batch, num_heads, keys, d_k)``
        value: ``(batch, num_heads, keys, d_v)``
        mask: additive, see above

    Returns:
        ``(batch, num_heads, queries, d_v)``
    """
    if query.is_cuda:
        return F.scaled_dot_product_attention(query, key, value, attn_mask=mask.to(query.dtype))
    # On CPUs the fused kernel spends most of its time in its backward pass when sentences are
    # short and heads are small; three plain products take a tenth of that.
    # The scores are in bits, as _ShortSoftmax takes them: divided by ln 2.
    scaled = query * (query.size(-1) ** -0.5 / math.log(2.0))
    scores = scaled @ key.transpose(-2, -1) + mask
    wide = torch.promote_types(scores.dtype, torch.float32)
    weights = cast(Tensor, _ShortSoftmax.apply(scores.to(wide)))
    return weights.to(value.dtype) @ value


class _ShortSoftmax(Function):
    """Softmax over the last dimension, of scores in bits: 2^x / sum(2^x).

    On CPUs it is up to four times as fast as torch's for rows as short as a sentence. Powers of
    two, since the exponential of a hidden score of -inf takes twenty times as long as another.
    """

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


class KeyValueCache:
    """The keys and values decoded so far in one layer, in place of computing them again.

    The hypotheses of a sentence stand side by side, and each entry stays where it was written:
    which of them a hypothesis descends from is a matter of the mask, so that hypotheses change
    places without a copy. To the products, the hypotheses are so many queries of one sentence.
    """

    def __init__(self) -> None:
        self._length = self._capacity = 0
        self._keys = self._values = torch.empty(0)

    def append(self, keys: Tensor, values: Tensor) -> tuple[Tensor, Tensor]:
        """Add entries ``(batch, num_heads, new, d_k or d_v)`` and return all there are."""
        start, end = self._length, self._length + keys.size(2)
        if end > self._capacity:
            self._grow(keys, values, max(_FIRST_CAPACITY * keys.size(2), 2 * end))
        # Keys lie transposed, as the product with queries reads them.
        self._keys[..., start:end] = keys.transpose(2, 3)
        self._values[:, :, start:end] = values
        self._length = end
        return self._keys[..., :end].transpose(2, 3), self._values[:, :, :end]

    def _grow(self, keys: Tensor, values: Tensor, capacity: int) -> None:
        batch, num_heads, _, d_k = keys.shape
        old_keys, old_values, length = self._keys, self._values, self._length
        self._keys = keys.new_empty(batch, num_heads, d_k, capacity)
        self._values = values.new_empty(batch, num_heads, capacity, values.size(3))
        self._capacity = capacity
        if length > 0:
            self._keys[..., :length] = old_keys[..., :length]
            self._values[:, :, :length] = old_values[:, :, :length]

    def select(self, sentences: Tensor) -> None:
        """Keep the given sentences, in the given order."""
        if self._length > 0:
            self._keys = self._keys.index_select(0, sentences)
            self._values = self._values.index_select(0, sentences)


class MultiHeadAttention(nn.Module):
    """``num_heads`` attentions side by side, section 3.2.2.

    W^Q maps to ``num_heads * d_k``; W^K and W^V stand in one matrix, W^O maps back from
    ``num_heads * d_v``. None has a bias, as in the paper.
    """

    def __init__(self, d_model: int, num_heads: int, d_k: int, d_v: int) -> None:
        super().__init__()
        self.num_heads, self.d_k, self.d_v = num_heads, d_k, d_v
        self.query = nn.Linear(d_model, num_heads * d_k, bias=False)
        self.key_value = nn.Linear(d_model, num_heads * (d_k + d_v), bias=False)
        self.output = nn.Linear(num_heads * d_v, d_model, bias=False)

    def reset_parameters(self) -> None:
        """Xavier-uniform for each of the paper's matrices by itself, W^K and W^V included."""
        key, value = self.key_value.weight.split(
            [self.num_heads * self.d_k, self.num_heads * self.d_v]
        )
        for weight in (self.query.weight, key, value, self.output.weight):
            nn.init.xavier_uniform_(weight)

    def keys_values(self, memory: Tensor) -> tuple[Tensor, Tensor]:
        """``(batch, keys, d_model)`` to keys ``(batch, num_heads, keys, d_k)`` and values."""
        batch, length, _ = memory.shape
        key, value = self.key_value(memory).split(
            [self.num_heads * self.d_k, self.num_heads * self.d_v], dim=-1
        )
        key = key.view(batch, length, self.num_heads, self.d_k).transpose(1, 2)
        value = value.view(batch, length, self.num_heads, self.d_v).transpose(1, 2)
        return key, value

    def forward(self, x: Tensor, key: Tensor, value: Tensor, mask: Tensor) -> Tensor:
        """Queries from ``x`` ``(batch, queries, d_model)`` over projected keys and values."""
        batch, length, _ = x.shape
        query = self.query(x).view(batch, length, self.num_heads, self.d_k).transpose(1, 2)
        heads = scaled_dot_product_attention(query, key, value, mask)
        joined = heads.transpose(1, 2).reshape(batch, length, self.num_heads * self.d_v)
        return self.output(joined)
