"""Word-pieces and positions to vectors (sections 3.4 and 3.5)."""

from __future__ import annotations

import math

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from transformer.config import ModelConfig
from transformer.model.dropout import Dropout


def sinusoids(length: int, d_model: int, start: int = 0) -> Tensor:
    """PE(pos, 2i) = sin(pos / 10000^(2i/d_model)), PE(pos, 2i+1) = cos(same), section 3.5.

    Returns:
        ``(length, d_model)`` for the positions from ``start`` on, in float32.
    """
    position = torch.arange(start, start + length, dtype=torch.float64).unsqueeze(1)
    frequency = 10_000 ** (-torch.arange(0, d_model, 2, dtype=torch.float64) / d_model)
    table = torch.empty(length, d_model)
    table[:, 0::2] = torch.sin(position * frequency)
    table[:, 1::2] = torch.cos(position * frequency)
    return table


class Embedding(nn.Module):
    """The one matrix of both languages, which is also the pre-softmax map, and the positions.

    Both stacks share it. Learned positions end at ``max_positions``; those beyond take the last.
    """

    def __init__(self, config: ModelConfig) -> None:
        super().__init__()
        self.d_model = config.d_model
        self.weight = nn.Parameter(torch.empty(config.vocab_size, config.d_model))
        self.dropout = Dropout(config.dropout)
        self.positions = None
        if config.positions == "learned":
            self.positions = nn.Parameter(torch.empty(config.max_positions, config.d_model))
        else:
            table = sinusoids(config.max_positions, config.d_model)
            self.register_buffer("sinusoids", table, persistent=False)

    def reset_parameters(self) -> None:
        """N(0, 1/d_model), so that the scaled embeddings and the logits start at unit size."""
        for table in (self.weight, self.positions):
            if table is not None:
                nn.init.normal_(table, std=self.d_model**-0.5)

    def forward(self, tokens: Tensor) -> Tensor:
        """Embed ``tokens`` ``(batch, length)`` as ``(batch, length, d_model)``."""
        embedded = F.embedding(tokens, self.weight) * math.sqrt(self.d_model)
        return self.dropout(embedded + self._encode_positions(0, tokens.size(1)))

    def step(self, tokens: Tensor, position: int) -> Tensor:
        """Embed ``tokens`` ``(batch, beam)`` that all stand at one ``position``."""
        embedded = F.embedding(tokens, self.weight) * math.sqrt(self.d_model)
        return self.dropout(embedded + self._encode_positions(position, 1))

    def logits(self, states: Tensor) -> Tensor:
        """The pre-softmax map, ``(..., d_model)`` to ``(..., vocab_size)``, section 3.4."""
        return F.linear(states, self.weight)

    def _encode_positions(self, start: int, length: int) -> Tensor:
        if self.positions is not None:
            index = torch.arange(start, start + length, device=self.positions.device)
            return self.positions[index.clamp_(max=self.positions.size(0) - 1)]
        if start + length > self.sinusoids.size(0):
            table = sinusoids(2 * (start + length), self.d_model)
            self.sinusoids = table.to(self.sinusoids.device)
        return self.sinusoids[start : start + length]
