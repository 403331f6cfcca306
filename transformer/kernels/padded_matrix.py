"""An embedding matrix, padded with rows for faster matrix products.

Plain form: the matrix of ``vocab_size`` rows. Lookups, logits, gradients and saved weights are the
same; the added rows stay zero.
"""

from __future__ import annotations

from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

# The product for the logits has a column for each row here, and is fastest with a multiple of this.
_ROWS_MULTIPLE = 64


class PaddedMatrix(nn.Module):
    """A ``(vocab_size, d_model)`` parameter, padded with rows of zeros.

    Attributes:
        weight: ``(rows, d_model)``, ``rows`` being ``vocab_size`` rounded up to a multiple of 64
    """

    def __init__(self, vocab_size: int, d_model: int) -> None:
        super().__init__()
        self.vocab_size, self.d_model = vocab_size, d_model
        rows = -(-vocab_size // _ROWS_MULTIPLE) * _ROWS_MULTIPLE
        self.weight = nn.Parameter(torch.zeros(rows, d_model))

    def logits(self, states: Tensor) -> Tensor:
        """``(..., d_model)`` to ``(..., vocab_size)``."""
        return F.linear(states, self.weight)[..., : self.vocab_size]

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
