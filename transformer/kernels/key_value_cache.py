"""The keys and values that one attention layer has computed so far while decoding.

Plain form: ``torch.cat`` of everything appended, along the positions.
"""

from __future__ import annotations

import torch
from torch import Tensor

# Decoding steps that fit before the cache grows for the first time; then it doubles.
_INITIAL_STEPS = 32


class KeyValueCache:
    """Keys and values of all hypotheses of a sentence, in buffers that grow by doubling.

    Entries are never moved: which of them a hypothesis descends from is expressed by the attention
    mask, so reordering hypotheses copies nothing. To the matrix products, the hypotheses of a
    sentence are further queries of that sentence.
    """

    def __init__(self) -> None:
        self._length = self._capacity = 0
        self._keys = self._values = torch.empty(0)

    def append(self, keys: Tensor, values: Tensor) -> tuple[Tensor, Tensor]:
        """Add entries ``(batch, num_heads, new, d_k or d_v)`` and return all entries."""
        start, end = self._length, self._length + keys.size(2)
        if end > self._capacity:
            self._grow(keys, values, max(_INITIAL_STEPS * keys.size(2), 2 * end))
        # Keys are stored transposed, as the product with the queries reads them.
        self._keys[..., start:end] = keys.transpose(2, 3)
        self._values[:, :, start:end] = values
        self._length = end
        return self._keys[..., :end].transpose(2, 3), self._values[:, :, :end]

    def _grow(self, keys: Tensor, values: Tensor, capacity: int) -> None:
        batch, num_heads, _, d_k = keys.shape
        old_keys, old_values, length = self._keys, self._values, self._length
        self._keys = keys.new_empty(batch, num_heads, d_k, capacity)
        self._values = values.new_empty(batch, num_heads, capacity, values.size(3))
        self._capacity = capacity
        if length > 0:
            self._keys[..., :length] = old_keys[..., :length]
            self._values[:, :, :length] = old_values[:, :, :length]

    def select(self, sentences: Tensor) -> None:
        """Keep these sentences, given as indices into ``batch``, in this order."""
        if self._length > 0:
            self._keys = self._keys.index_select(0, sentences)
            self._values = self._values.index_select(0, sentences)
