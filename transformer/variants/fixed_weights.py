"""Attention whose weights depend on positions alone."""

from __future__ import annotations

import math

import torch
from torch import Tensor, nn

from transformer.config import ModelConfig
from transformer.model.attention import MultiHeadAttention
from transformer.model.encoder_decoder import FeedForward, Transformer

_PATTERNS = 7


def position_patterns(real: Tensor, dtype: torch.dtype) -> Tensor:
    """The seven fixed patterns of attention (Raganato et al. 2020, section 3).

    Query i of a sentence of n gives all its weight to key i, i - 1 or i + 1; or to the keys up to
    i - 2 by (j + 1)^3, to those from i + 2 on by (n - j)^3, to all by (j + 1)^3, or to all by
    (n - j)^3, normalised. Where a pattern has no key, as of the first position's previous one, the
    query attends to itself.

    Args:
        real: ``(batch, keys)``, false for padding at the end of sentences

    Returns:
        ``(batch, 7, keys, keys)``, each query's weights in the order above
    """
    key = torch.arange(real.size(1), device=real.device)
    query = key[:, None]
    length = real.sum(1)[:, None, None]
    to_end = (key + 1).to(dtype) ** 3
    to_start = (length - key).clamp(min=0).to(dtype) ** 3  # (batch, 1, keys)
    shape = len(real), len(key), len(key)
    weights = [(key == query - step).to(dtype).expand(shape) for step in (0, 1, -1)]
    weights += [(key <= query - 2) * to_end.expand(shape), (key >= query + 2) * to_start]
    weights += [to_end.expand(shape), to_start.expand(shape)]
    found = torch.stack(weights, dim=1) * real[:, None, None, :]
    itself = torch.eye(len(key), dtype=dtype, device=real.device)
    sums = found.sum(-1, keepdim=True)
    return torch.where(sums > 0, found / sums.clamp(min=1), itself)


class FixedHeadsAttention(MultiHeadAttention):
    """The first head is learned; each other one has a fixed pattern and a W^V of its own.

    With fewer than eight heads the last patterns are left out; from the ninth head on they repeat.
    """

    def __init__(self, config: ModelConfig) -> None:
        super().__init__(config.d_model, config.num_heads, config.d_k, config.d_v)
        self.query = nn.Linear(config.d_model, self.d_k, bias=False)
        values = self.num_heads * self.d_v
        self.key_value = nn.Linear(config.d_model, self.d_k + values, bias=False)

    def _split(self, joined: Tensor, dim: int) -> tuple[Tensor, ...]:
        return joined.split([self.d_k, joined.size(dim) - self.d_k], dim)

    def attend(self, query: Tensor, key: Tensor, value: Tensor, mask: Tensor) -> Tensor:
        """Needs a mask ``(batch, 1, 1, keys)``, which packed sentences do not have."""
        learned = super().attend(query, key, value[:, :1], mask)
        real = mask[:, 0, 0] > -torch.inf
        patterns = position_patterns(real, torch.promote_types(value.dtype, torch.float32))
        heads = torch.arange(self.num_heads - 1, device=value.device) % _PATTERNS
        fixed = patterns[:, heads].to(value.dtype) @ value[:, 1:]
        return torch.cat([learned, fixed.to(learned.dtype)], dim=1)


class FixedHeadsTransformer(Transformer):
    """All heads of the encoder but one fixed by position (Raganato et al. 2020)."""

    def __init__(self, config: ModelConfig) -> None:
        super().__init__(config)
        for layer in self.encoder:
            layer.self_attention = FixedHeadsAttention(config)


class AverageAttention(MultiHeadAttention):
    """An average of earlier positions, a network and gates (Zhang et al. 2018, equations 1 to 3).

    g = FFN(the mean of y_1 to y_j); i and f = sigmoid(W [y_j; g] + b); the result is i y_j + f g.
    The mean is attention with scores of 0, so that the mask says what it is over.
    """

    def __init__(self, config: ModelConfig) -> None:
        nn.Module.__init__(self)
        self.num_heads = math.gcd(config.d_model, config.num_heads)  # parts of y, for the kernels
        self.d_k = self.d_v = config.d_model // self.num_heads
        self.feed_forward = FeedForward(config.d_model, config.d_ff)
        self.gate = nn.Linear(2 * config.d_model, 2 * config.d_model)

    def reset_parameters(self) -> None:
        """Xavier-uniform weights, zero biases; the network draws its own."""
        nn.init.xavier_uniform_(self.gate.weight)
        nn.init.zeros_(self.gate.bias)

    def queries(self, x: Tensor) -> Tensor:
        """Zeros, ``(batch, num_heads, queries, d_k)``."""
        return torch.zeros_like(self._parts(x))

    def keys_values(self, memory: Tensor) -> tuple[Tensor, Tensor]:
        """Zeros and the input itself, both ``(batch, num_heads, keys, d_k)``."""
        parts = self._parts(memory)
        return torch.zeros_like(parts), parts

    def forward(self, x: Tensor, key: Tensor, value: Tensor, mask: Tensor) -> Tensor:
        """``(batch, queries, d_model)`` to the same shape."""
        mean = self.attend(self.queries(x), key, value, mask).transpose(1, 2).flatten(2)
        average = self.feed_forward(mean)
        of_input, of_average = self.gate(torch.cat([x, average], -1)).sigmoid().chunk(2, dim=-1)
        return of_input * x + of_average * average

    def _parts(self, x: Tensor) -> Tensor:
        return x.unflatten(-1, (self.num_heads, self.d_k)).transpose(1, 2)


class AverageAttentionTransformer(Transformer):
    """Averaging in place of the decoder's self-attention (Zhang et al. 2018)."""

    def __init__(self, config: ModelConfig) -> None:
        super().__init__(config)
        for layer in self.decoder:
            layer.self_attention = AverageAttention(config)
