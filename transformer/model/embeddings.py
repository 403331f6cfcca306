"""Embeddings and positions (sections 3.4 and 3.5)."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Self

import torch
from torch import Tensor, nn

from transformer.config import ModelConfig
from transformer.kernels.dropout import Dropout
from transformer.kernels.lookup import lookup
from transformer.kernels.padded_matrix import PaddedMatrix
from transformer.model.packed import PackedTokens


def sinusoids(length: int, d_model: int) -> Tensor:
    """PE(pos, 2i) = sin(pos / 10000^(2i/d_model)), PE(pos, 2i+1) = cos(same), section 3.5.

    Returns:
        ``(length, d_model)`` for the positions from 0 on, in float32.
    """
    position = torch.arange(length, dtype=torch.float64).unsqueeze(1)
    frequency = 10_000 ** (-torch.arange(0, d_model, 2, dtype=torch.float64) / d_model)
    table = torch.empty(length, d_model)
    table[:, 0::2] = torch.sin(position * frequency)
    table[:, 1::2] = torch.cos(position * frequency)
    return table


class Embedding(PaddedMatrix):
    """The one matrix that both stacks and the pre-softmax map share, and the positions.

    Learned positions end at ``max_positions``; later ones use the last row.
    """

    def __init__(self, config: ModelConfig) -> None:
        super().__init__(config.vocab_size, config.d_model)
        self.dropout = Dropout(config.dropout)
        self.positions = None
        if config.positions == "learned":
            self.positions = nn.Parameter(torch.empty(config.max_positions, config.d_model))
        else:
            # Not a buffer, which DDP would broadcast at every step.
            self._sinusoids = sinusoids(config.max_positions, config.d_model)

    def reset_parameters(self) -> None:
        """N(0, 1/d_model), so that scaled embeddings and logits start with unit variance."""
        for table in (self.weight[: self.vocab_size], self.positions):
            if table is not None:
                nn.init.normal_(table, std=self.d_model**-0.5)

    def _apply(self, fn: Callable[[Tensor], Tensor], recurse: bool = True) -> Self:
        super()._apply(fn, recurse)
        if self.positions is None:
            # Computed again, as to_empty keeps no values; a compiled step needs it on its device.
            self._sinusoids = sinusoids(len(self._sinusoids), self.d_model).to(self.weight)
        return self

    def forward(self, tokens: Tensor | PackedTokens, start: int = 0) -> Tensor:
        """Embed ``tokens`` ``(batch, length)`` at the positions from ``start`` on.

        Returns:
            ``(batch, length, d_model)``
        """
        if isinstance(tokens, PackedTokens):
            table = self.encode_positions(0, tokens.longest)
            ids, positions = tokens.ids, lookup(table, tokens.positions)
        else:
            ids, positions = tokens, self.encode_positions(start, tokens.size(1))
        return self.dropout(lookup(self.weight, ids) * math.sqrt(self.d_model) + positions)

    def encode_positions(self, start: int, length: int) -> Tensor:
        """The encodings of the positions from ``start`` on, ``(length, d_model)``."""
        if self.positions is not None:
            index = torch.arange(start, start + length, device=self.positions.device)
            return lookup(self.positions, index.clamp_(max=self.positions.size(0) - 1))
        table = self._sinusoids
        if start + length > table.size(0) or table.device != self.weight.device:
            # It grows with the longest sentence that a process sees. Another thread may do the
            # same for a shorter one.
            table = sinusoids(2 * (start + length), self.d_model).to(self.weight)
            self._sinusoids = table
        return table[start : start + length]
