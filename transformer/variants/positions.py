"""Other ways to encode positions."""

from __future__ import annotations

from dataclasses import replace

import torch
from torch import Tensor, nn

from transformer.config import ModelConfig
from transformer.kernels.sentence_attention import Sentences
from transformer.model.attention import MultiHeadAttention
from transformer.model.embeddings import Embedding
from transformer.model.encoder_decoder import Transformer


class UnpositionedEmbedding(Embedding):
    """Word-pieces alone."""

    def encode_positions(self, start: int, length: int) -> Tensor:
        return self.weight.new_zeros(length, self.d_model)


class NoPositionsTransformer(Transformer):
    """No positions but what the decoder's mask or ``self_attention`` shows (Haviv et al. 2022)."""

    self_attention = MultiHeadAttention

    def __init__(self, config: ModelConfig) -> None:
        super().__init__(config)
        self.embedding = UnpositionedEmbedding(replace(config, positions="sinusoidal"))
        sizes = config.d_model, config.num_heads, config.d_k, config.d_v
        for layer in (*self.encoder, *self.decoder):
            layer.self_attention = self.self_attention(*sizes)


def positions_of(query: Tensor, key: Tensor) -> tuple[Tensor, Tensor]:
    """The positions of ``(…, queries, d_k)`` and ``(…, keys, d_k)`` in their sentence.

    While decoding, the queries are the newest position of each hypothesis, and the keys hold an
    entry for each hypothesis and position; at the first position each query sees only its own.
    """
    queries, keys = query.size(-2), key.size(-2)
    entries = torch.arange(keys, device=key.device) // (1 if keys == queries else queries)
    return entries[-queries:], entries


class RotaryAttention(MultiHeadAttention):
    """Rotates pairs of query and key by their positions (Su et al. 2021, equation 34)."""

    def attend(self, query: Tensor, key: Tensor, value: Tensor, mask: Tensor) -> Tensor:
        at, entries = positions_of(query, key)
        if isinstance(mask, Sentences):
            at, entries = mask.query_positions, mask.key_positions
        return super().attend(_rotate(query, at), _rotate(key, entries), value, mask)


def _rotate(x: Tensor, positions: Tensor) -> Tensor:
    half = x.size(-1) // 2
    angles = positions[:, None] * 10_000 ** (-torch.arange(half, device=x.device) / half)
    sine, cosine = angles.sin().to(x.dtype), angles.cos().to(x.dtype)
    first, second, rest = x.tensor_split([half, 2 * half], dim=-1)
    return torch.cat([first * cosine - second * sine, first * sine + second * cosine, rest], -1)


class RotaryTransformer(NoPositionsTransformer):
    """Rotary positions in every self-attention."""

    self_attention = RotaryAttention


class RelativeAttention(MultiHeadAttention):
    """Learned relative positions of keys; adding them to values is no gain (Shaw et al. 2018)."""

    furthest = 16

    def __init__(self, d_model: int, num_heads: int, d_k: int, d_v: int) -> None:
        super().__init__(d_model, num_heads, d_k, d_v)
        self.relative = nn.Parameter(torch.empty(2 * self.furthest + 1, self.d_k))
        nn.init.xavier_uniform_(self.relative)

    def attend(self, query: Tensor, key: Tensor, value: Tensor, mask: Tensor) -> Tensor:
        at, entries = positions_of(query, key)
        distance = (entries - at[:, None]).clamp(-self.furthest, self.furthest) + self.furthest
        vectors = self.relative[distance].to(query.dtype)
        bias = torch.einsum("bhqd,qkd->bhqk", query, vectors) * self.d_k**-0.5
        return super().attend(query, key, value, mask + bias)


class RelativeTransformer(NoPositionsTransformer):
    """Relative positions in every self-attention."""

    self_attention = RelativeAttention


class AlibiAttention(MultiHeadAttention):
    """Scores fall with the distance, with a different slope in each head (Press et al. 2022)."""

    def attend(self, query: Tensor, key: Tensor, value: Tensor, mask: Tensor) -> Tensor:
        at, entries = positions_of(query, key)
        heads = torch.arange(1, self.num_heads + 1, device=query.device)
        slopes = 2.0 ** (-8 * heads / self.num_heads)
        bias = -slopes[:, None, None] * (entries - at[:, None]).abs()
        return super().attend(query, key, value, mask + bias)


class AlibiTransformer(NoPositionsTransformer):
    """Attention with linear biases in every self-attention."""

    self_attention = AlibiAttention
