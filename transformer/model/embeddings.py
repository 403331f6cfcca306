"""Word-pieces and positions to vectors (sections 3.4 and 3.5)."""

from __future__ import annotations

import math
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from transformer.config import ModelConfig
from transformer.kernels.dropout import Dropout


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


# Products are fastest over so many columns.
_ROWS_MULTIPLE = 64


class Embedding(nn.Module):
    """The one matrix of both languages, which is also the pre-softmax map, and the positions.

    Both stacks share it. Learned positions end at ``max_positions``; those beyond take the last.

    Attributes:
        weight: ``(rows, d_model)``: a row for each of ``vocab_size`` word-pieces, and below them
            rows of zeros up to a multiple of 64, for speed alone. No logit is given for those, no
            gradient reaches them, and what is saved leaves them out
        vocab_size: word-pieces
    """

    def __init__(self, config: ModelConfig) -> None:
        super().__init__()
        self.d_model, self.vocab_size = config.d_model, config.vocab_size
        rows = -(-config.vocab_size // _ROWS_MULTIPLE) * _ROWS_MULTIPLE
        self.weight = nn.Parameter(torch.zeros(rows, config.d_model))
        self.dropout = Dropout(config.dropout)
        self.positions = None
        if config.positions == "learned":
            self.positions = nn.Parameter(torch.empty(config.max_positions, config.d_model))
        else:
            # No buffer: it grows with the longest sentence of each process, and DDP would have to
            # send it around at each step.
            self._sinusoids = sinusoids(config.max_positions, config.d_model)

    def reset_parameters(self) -> None:
        """N(0, 1/d_model), so that the scaled embeddings and the logits start at unit size."""
        for table in (self.weight[: self.vocab_size], self.positions):
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
        return F.linear(states, self.weight)[..., : self.vocab_size]

    def num_padding(self) -> int:
        """Numbers of ``weight`` that are of no word-piece."""
        return self.weight[self.vocab_size :].numel()

    def _save_to_state_dict(self, destination: Any, prefix: str, keep_vars: bool) -> None:
        super()._save_to_state_dict(destination, prefix, keep_vars)
        name = f"{prefix}weight"
        destination[name] = destination[name][: self.vocab_size].clone()

    def _load_from_state_dict(
        self, state_dict: dict[str, Any], prefix: str, *args: Any, **kwargs: Any
    ) -> None:
        name = f"{prefix}weight"
        if name in state_dict:
            missing = self.weight.size(0) - self.vocab_size
            state_dict[name] = F.pad(state_dict[name], (0, 0, 0, missing))
        super()._load_from_state_dict(state_dict, prefix, *args, **kwargs)

    def _encode_positions(self, start: int, length: int) -> Tensor:
        if self.positions is not None:
            index = torch.arange(start, start + length, device=self.positions.device)
            return self.positions[index.clamp_(max=self.positions.size(0) - 1)]
        if start + length > self._sinusoids.size(0):
            self._sinusoids = sinusoids(2 * (start + length), self.d_model)
        self._sinusoids = self._sinusoids.to(self.weight)  # itself, but for the first time
        return self._sinusoids[start : start + length]
