"""The two kinds of layer and what they are made of (sections 3.1 and 3.3)."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from transformer.config import ModelConfig
from transformer.kernels.dropout import Dropout
from transformer.model.attention import KeyValueCache, MultiHeadAttention


class FeedForward(nn.Module):
    """max(0, xW1 + b1)W2 + b2, equation 2."""

    def __init__(self, d_model: int, d_ff: int) -> None:
        super().__init__()
        self.inner = nn.Linear(d_model, d_ff)
        self.outer = nn.Linear(d_ff, d_model)

    def reset_parameters(self) -> None:
        """Xavier-uniform weights, zero biases."""
        for linear in (self.inner, self.outer):
            nn.init.xavier_uniform_(linear.weight)
            nn.init.zeros_(linear.bias)

    def forward(self, x: Tensor) -> Tensor:
        """``(..., d_model)`` to ``(..., d_model)``."""
        return self.outer(torch.relu(self.inner(x)))


class PostNorm(nn.Module):
    """LayerNorm(x + Dropout(Sublayer(x))), sections 3.1 and 5.4."""

    def __init__(self, config: ModelConfig) -> None:
        super().__init__()
        self.dropout = Dropout(config.dropout)
        self.norm = nn.LayerNorm(config.d_model)

    def forward(self, x: Tensor, sublayer_output: Tensor) -> Tensor:
        """Both ``(..., d_model)``; returns the same shape."""
        return self.norm(x + self.dropout(sublayer_output))


def _attention(config: ModelConfig) -> MultiHeadAttention:
    return MultiHeadAttention(config.d_model, config.num_heads, config.d_k, config.d_v)


class EncoderLayer(nn.Module):
    """Self-attention, then the feed-forward network."""

    def __init__(self, config: ModelConfig) -> None:
        super().__init__()
        self.self_attention = _attention(config)
        self.add_attention = PostNorm(config)
        self.feed_forward = FeedForward(config.d_model, config.d_ff)
        self.add_feed_forward = PostNorm(config)

    def forward(self, src: Tensor, src_mask: Tensor) -> Tensor:
        """``(batch, src, d_model)`` to the same shape; ``src_mask`` is additive."""
        key, value = self.self_attention.keys_values(src)
        src = self.add_attention(src, self.self_attention(src, key, value, src_mask))
        return self.add_feed_forward(src, self.feed_forward(src))


class DecoderLayer(nn.Module):
    """Self-attention over the past, attention over the encoder's output, feed-forward."""

    def __init__(self, config: ModelConfig) -> None:
        super().__init__()
        self.self_attention = _attention(config)
        self.add_attention = PostNorm(config)
        self.cross_attention = _attention(config)
        self.add_cross_attention = PostNorm(config)
        self.feed_forward = FeedForward(config.d_model, config.d_ff)
        self.add_feed_forward = PostNorm(config)

    def forward(self, tgt: Tensor, tgt_mask: Tensor, memory: Tensor, memory_mask: Tensor) -> Tensor:
        """``(batch, tgt, d_model)`` to the same shape; both masks are additive."""
        key, value = self.self_attention.keys_values(tgt)
        tgt = self.add_attention(tgt, self.self_attention(tgt, key, value, tgt_mask))
        return self._after_self_attention(
            tgt, self.cross_attention.keys_values(memory), memory_mask
        )

    def step(
        self,
        tgt: Tensor,
        tgt_mask: Tensor,
        cache: KeyValueCache,
        memory: tuple[Tensor, Tensor],
        memory_mask: Tensor,
    ) -> Tensor:
        """One new position of each of ``beam`` hypotheses, ``(batch, beam, d_model)``.

        ``tgt_mask`` ``(batch, 1, beam, entries)`` leaves each its own past among the entries of
        ``cache``; ``memory`` holds the projected keys and values of the encoder's output.
        """
        key, value = cache.append(*self.self_attention.keys_values(tgt))
        tgt = self.add_attention(tgt, self.self_attention(tgt, key, value, tgt_mask))
        return self._after_self_attention(tgt, memory, memory_mask)

    def _after_self_attention(
        self, tgt: Tensor, memory: tuple[Tensor, Tensor], memory_mask: Tensor
    ) -> Tensor:
        key, value = memory
        tgt = self.add_cross_attention(tgt, self.cross_attention(tgt, key, value, memory_mask))
        return self.add_feed_forward(tgt, self.feed_forward(tgt))
