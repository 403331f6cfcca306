"""Scaled dot-product and multi-head attention (section 3.2).

Masks are additive: 0 where a query may attend to a key and -inf where it may not, or a bias of a
variant. They broadcast to ``(batch, num_heads, queries, keys)``. In packed batches
:class:`~transformer.kernels.sentences.Sentences` takes the place of a mask.
"""

from __future__ import annotations

import math

import torch.nn.functional as F
from torch import Tensor, nn

from transformer.kernels.key_value_cache import KeyValueCache
from transformer.kernels.sentence_attention import sentence_attention
from transformer.kernels.sentences import Sentences
from transformer.kernels.softmax import softmax_base2


def scaled_dot_product_attention(query: Tensor, key: Tensor, value: Tensor, mask: Tensor) -> Tensor:
    """softmax(QK^T / sqrt(d_k)) V, equation 1.

    Args:
        query: ``(batch, num_heads, queries, d_k)``
        key: ``(batch, num_heads, keys, d_k)``
        value: ``(batch, num_heads, keys, d_v)``
        mask: additive or ``Sentences``, see the module

    Returns:
        ``(batch, num_heads, queries, d_v)``
    """
    if isinstance(mask, Sentences):
        return sentence_attention(query, key, value, mask)
    if query.is_cuda:
        return F.scaled_dot_product_attention(query, key, value, attn_mask=mask.to(query.dtype))
    # On CPUs the fused kernel spends most of its time in its backward pass when sentences are
    # short and heads are small; plain products take a tenth of that.
    # Dividing by ln 2 as well makes the softmax one of powers of two: e^x = 2^(x / ln 2).
    scaled = query * (query.size(-1) ** -0.5 / math.log(2.0))
    weights = softmax_base2(scaled @ key.transpose(-2, -1) + mask / math.log(2.0))
    return weights.to(value.dtype) @ value


class MultiHeadAttention(nn.Module):
    """Concat(head_1, ..., head_h) W^O, section 3.2.2.

    W^Q maps to ``num_heads * d_k``; W^K and W^V are stored as one matrix; W^O maps back from
    ``num_heads * d_v``. None has a bias, as in the paper.
    """

    def __init__(self, d_model: int, num_heads: int, d_k: int, d_v: int) -> None:
        super().__init__()
        self.num_heads, self.d_k, self.d_v = num_heads, d_k, d_v
        self.query = nn.Linear(d_model, num_heads * d_k, bias=False)
        self.key_value = nn.Linear(d_model, num_heads * (d_k + d_v), bias=False)
        self.output = nn.Linear(num_heads * d_v, d_model, bias=False)

    def reset_parameters(self) -> None:
        """Xavier-uniform for each of the paper's matrices separately, W^K and W^V included."""
        for weight in (
            self.query.weight,
            *self._split(self.key_value.weight, 0),
            self.output.weight,
        ):
            nn.init.xavier_uniform_(weight)

    def _split(self, joined: Tensor, dim: int) -> tuple[Tensor, ...]:
        keys = joined.size(dim) * self.d_k // (self.d_k + self.d_v)
        return joined.split([keys, joined.size(dim) - keys], dim)

    def queries(self, x: Tensor) -> Tensor:
        """Project ``(batch, queries, d_model)`` to ``(batch, num_heads, queries, d_k)``."""
        return _heads(self.query(x), self.d_k)

    def keys_values(self, memory: Tensor) -> tuple[Tensor, Tensor]:
        """Project ``(batch, keys, d_model)`` to ``(batch, num_heads, keys, d_k)`` and ``d_v``."""
        key, value = self._split(self.key_value(memory), -1)
        return _heads(key, self.d_k), _heads(value, self.d_v)

    def forward(self, x: Tensor, key: Tensor, value: Tensor, mask: Tensor) -> Tensor:
        """Attend from ``x`` ``(batch, queries, d_model)`` to projected keys and values."""
        heads = self.attend(self.queries(x), key, value, mask)
        return self.output(heads.transpose(1, 2).flatten(2))

    def within(self, x: Tensor, mask: Tensor, cache: KeyValueCache | None = None) -> Tensor:
        """Attend from ``x`` to itself and to earlier positions in ``cache``, which ``x`` joins."""
        new = self.keys_values(x)
        key, value = new if cache is None else cache.append(*new)
        return self(x, key, value, mask)

    def attend(self, query: Tensor, key: Tensor, value: Tensor, mask: Tensor) -> Tensor:
        """Equation 1, which a variant may replace."""
        return scaled_dot_product_attention(query, key, value, mask)


def _heads(joined: Tensor, width: int) -> Tensor:
    """``(batch, length, num_heads * width)`` to ``(batch, num_heads, length, width)``."""
    return joined.unflatten(-1, (-1, width)).transpose(1, 2)
