"""The whole model (figure 1): two stacks, their masks, and the initialisation."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from transformer.config import PAD_ID, ModelConfig
from transformer.model.attention import MultiHeadAttention
from transformer.model.embeddings import Embedding
from transformer.model.layers import DecoderLayer, EncoderLayer, FeedForward


def padding_mask(tokens: Tensor) -> Tensor:
    """Additive mask ``(batch, 1, 1, length)`` that hides padding from all queries."""
    return additive_mask(tokens.eq(PAD_ID))[:, None, None, :]


def causal_mask(length: int, device: torch.device) -> Tensor:
    """Additive mask ``(length, length)`` that hides later positions (section 3.2.3).

    Padding comes after all real positions, so targets need no padding mask.
    """
    return additive_mask(torch.ones(length, length, dtype=torch.bool, device=device).triu(1))


def additive_mask(hidden: Tensor) -> Tensor:
    """-inf where ``hidden`` is true, else 0; the same shape."""
    return torch.zeros(hidden.shape, device=hidden.device).masked_fill_(hidden, -torch.inf)


class Transformer(nn.Module):
    """The encoder-decoder of section 3. Tokens are ids; 0 is padding."""

    def __init__(self, config: ModelConfig) -> None:
        super().__init__()
        self.config = config
        self.embedding = Embedding(config)
        self.encoder = nn.ModuleList(EncoderLayer(config) for _ in range(config.num_layers))
        self.decoder = nn.ModuleList(DecoderLayer(config) for _ in range(config.num_layers))
        self.reset_parameters()

    def reset_parameters(self) -> None:
        """Draw all weights from torch's current generator."""
        for module in self.modules():
            if isinstance(module, MultiHeadAttention | FeedForward | Embedding):
                module.reset_parameters()

    def forward(self, src: Tensor, tgt: Tensor) -> Tensor:
        """Logits ``(batch, tgt, vocab_size)`` of the word-piece after each of ``tgt``."""
        return self.embedding.logits(self.states(src, tgt))

    def states(self, src: Tensor, tgt: Tensor) -> Tensor:
        """The decoder's output ``(batch, tgt, d_model)``, before the pre-softmax map.

        Args:
            src: ``(batch, src)``
            tgt: ``(batch, tgt)``, beginning with the begin-of-sentence id
        """
        mask = padding_mask(src)
        return self.decode(tgt, self.encode(src, mask), mask)

    def encode(self, src: Tensor, src_mask: Tensor) -> Tensor:
        """``(batch, src)`` to the memory ``(batch, src, d_model)``."""
        memory = self.embedding(src)
        for layer in self.encoder:
            memory = layer(memory, src_mask)
        return memory

    def decode(self, tgt: Tensor, memory: Tensor, memory_mask: Tensor) -> Tensor:
        """``(batch, tgt)`` to states ``(batch, tgt, d_model)``, all positions at once."""
        states = self.embedding(tgt)
        tgt_mask = causal_mask(tgt.size(1), tgt.device)
        for layer in self.decoder:
            states = layer(states, tgt_mask, memory, memory_mask)
        return states

    def num_parameters(self) -> int:
        """The number of trained parameters, the shared matrix counted once, without padding."""
        total = sum(parameter.numel() for parameter in self.parameters())
        return total - self.embedding.num_padding()
