"""The Transformer of figure 1 (sections 3.1 and 3.3)."""

from __future__ import annotations

from collections.abc import Callable, Generator, Sequence
from contextlib import contextmanager
from typing import cast

import torch
from torch import Tensor, nn

from transformer.config import PAD_ID, ModelConfig
from transformer.kernels.dropout import Dropout
from transformer.kernels.key_value_cache import KeyValueCache
from transformer.kernels.padded_matrix import PaddedMatrix
from transformer.model.attention import MultiHeadAttention
from transformer.model.embeddings import Embedding
from transformer.model.packed import PackedTokens


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
    """LayerNorm(x + Dropout(Sublayer(x))), "Add & Norm" of figure 1, sections 3.1 and 5.4."""

    def __init__(self, config: ModelConfig) -> None:
        super().__init__()
        self.dropout = Dropout(config.dropout)
        self.norm = nn.LayerNorm(config.d_model)

    def forward(self, x: Tensor, sublayer: Callable[[Tensor], Tensor]) -> Tensor:
        """``(..., d_model)`` to the same shape, which ``sublayer`` keeps too."""
        return self.norm(x + self.dropout(sublayer(x)))


# The encoder's output as keys and values of one decoder layer, and the additive mask of padding.
Memory = tuple[Tensor, Tensor, Tensor]


class EncoderLayer(nn.Module):
    """Self-attention, then the feed-forward network."""

    def __init__(self, config: ModelConfig) -> None:
        super().__init__()
        sizes = config.d_model, config.num_heads, config.d_k, config.d_v
        self.self_attention = MultiHeadAttention(*sizes)
        self.self_attention_norm = PostNorm(config)
        self.feed_forward = FeedForward(config.d_model, config.d_ff)
        self.feed_forward_norm = PostNorm(config)

    def forward(self, src: Tensor, src_mask: Tensor) -> Tensor:
        """``(batch, src, d_model)`` to the same shape; ``src_mask`` is additive."""
        src = self.self_attention_norm(src, lambda x: self.self_attention.within(x, src_mask))
        return self.feed_forward_norm(src, self.feed_forward)


class DecoderLayer(nn.Module):
    """Self-attention over earlier positions, attention over the encoder's output, feed-forward."""

    def __init__(self, config: ModelConfig) -> None:
        super().__init__()
        sizes = config.d_model, config.num_heads, config.d_k, config.d_v
        self.self_attention = MultiHeadAttention(*sizes)
        self.self_attention_norm = PostNorm(config)
        self.cross_attention = MultiHeadAttention(*sizes)
        self.cross_attention_norm = PostNorm(config)
        self.feed_forward = FeedForward(config.d_model, config.d_ff)
        self.feed_forward_norm = PostNorm(config)

    def forward(
        self, tgt: Tensor, tgt_mask: Tensor, memory: Memory, cache: KeyValueCache | None = None
    ) -> Tensor:
        """``(batch, tgt, d_model)`` to the same shape; ``cache`` has earlier positions, if any."""
        attention = self.self_attention
        tgt = self.self_attention_norm(tgt, lambda x: attention.within(x, tgt_mask, cache))
        tgt = self.cross_attention_norm(tgt, lambda x: self.cross_attention(x, *memory))
        return self.feed_forward_norm(tgt, self.feed_forward)


def padding_mask(tokens: Tensor | PackedTokens) -> Tensor:
    """Additive mask ``(batch, 1, 1, length)`` that hides padding from all queries."""
    if isinstance(tokens, PackedTokens):
        return tokens.mask()
    return additive_mask(tokens.eq(PAD_ID))[:, None, None, :]


def causal_mask(length: int, device: torch.device) -> Tensor:
    """Additive mask ``(length, length)`` that hides later positions (section 3.2.3).

    Padding comes after all real positions, so targets need no padding mask.
    """
    return additive_mask(torch.ones(length, length, dtype=torch.bool, device=device).triu(1))


def additive_mask(hidden: Tensor) -> Tensor:
    """-inf where ``hidden`` is true, else 0; the same shape."""
    return torch.zeros(hidden.shape, device=hidden.device).masked_fill_(hidden, -torch.inf)


@contextmanager
def evaluating(model: nn.Module) -> Generator[None]:
    """Put all parts of ``model`` into evaluation mode within this context."""
    training = [part for part in model.modules() if part.training]
    model.eval()
    try:
        yield
    finally:
        for part in training:
            part.training = True


class Transformer(nn.Module):
    """The encoder-decoder of section 3 on ids; a variant is a subclass with other parts."""

    def __init__(self, config: ModelConfig) -> None:
        super().__init__()
        self.config = config
        self.embedding = Embedding(config)
        encoder = nn.ModuleList(EncoderLayer(config) for _ in range(config.num_layers))
        decoder = nn.ModuleList(DecoderLayer(config) for _ in range(config.num_layers))
        self.encoder = cast(Sequence[EncoderLayer], encoder)
        self.decoder = cast(Sequence[DecoderLayer], decoder)
        self.reset_parameters()

    def reset_parameters(self) -> None:
        """Draw all weights from torch's current generator."""
        for module in self.modules():
            if isinstance(module, MultiHeadAttention | FeedForward | Embedding):
                module.reset_parameters()

    @property
    def output(self) -> PaddedMatrix:
        """The pre-softmax map, which shares its matrix with the embeddings (section 3.4)."""
        return self.embedding

    def forward(self, src: Tensor, tgt: Tensor) -> Tensor:
        """Logits ``(batch, tgt, vocab_size)`` of the word-piece after each of ``tgt``."""
        return self.output.logits(self.states(src, tgt))

    def states(self, src: Tensor | PackedTokens, tgt: Tensor | PackedTokens) -> Tensor:
        """The decoder's output ``(batch, tgt, d_model)``, before the pre-softmax map.

        Args:
            src: ``(batch, src)``, or both sides packed
            tgt: ``(batch, tgt)``, beginning with the begin-of-sentence id
        """
        mask = padding_mask(src)
        return self.decode(tgt, self.encode(src, mask), mask)

    def encode(self, src: Tensor | PackedTokens, src_mask: Tensor) -> Tensor:
        """``(batch, src)`` to the memory ``(batch, src, d_model)``."""
        memory = self.embedding(src)
        for layer in self.encoder:
            memory = layer(memory, src_mask)
        return memory

    def decode(self, tgt: Tensor | PackedTokens, memory: Tensor, memory_mask: Tensor) -> Tensor:
        """``(batch, tgt)`` to states ``(batch, tgt, d_model)``, all positions at once."""
        states = self.embedding(tgt)
        if isinstance(tgt, PackedTokens):
            tgt_mask, memory_mask = tgt.mask(causal=True), tgt.mask_to(memory_mask)
        else:
            tgt_mask = causal_mask(tgt.size(1), tgt.device)
        for layer in self.decoder:
            projected = *layer.cross_attention.keys_values(memory), memory_mask
            states = layer(states, tgt_mask, projected)
        return states
