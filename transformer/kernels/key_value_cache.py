"""Keys and values of one layer while decoding.

Plain form: ``torch.cat`` of everything appended, along the positions.
"""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor

# Decoding steps that fit before the cache grows for the first time; then it doubles.
_INITIAL_STEPS = 32


def in_memory_order(keys: Tensor) -> Tensor:
    """Keys ``(batch, num_heads, keys, d_k)`` in the order of dimensions in memory, or back.

    In memory they are transposed for the matrix products of a CPU, but not for a GPU's fused
    kernels, which refuse anything else.
    """
    return keys.transpose(2, 3) if keys.device.type == "cpu" else keys


def in_aligned_rows(mask: Tensor) -> Tensor:
    """Begin rows at multiples of 8 elements, or a GPU's fused kernel copies the mask per layer."""
    missing = -mask.size(-1) % 8
    if missing == 0 or mask.device.type == "cpu":
        return mask
    return F.pad(mask, (0, missing))[..., : mask.size(-1)]


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
        in_memory_order(self._keys)[:, :, start:end] = keys
        self._values[:, :, start:end] = values
        self._length = end
        return in_memory_order(self._keys)[:, :, :end], self._values[:, :, :end]

    def _grow(self, keys: Tensor, values: Tensor, capacity: int) -> None:
        old_keys, old_values = self._keys, self._values
        room = keys[:, :, :1].expand(-1, -1, capacity, -1)  # for its shape alone
        self._keys = torch.empty_like(in_memory_order(room), memory_format=torch.contiguous_format)
        self._values = values.new_empty(*values.shape[:2], capacity, values.size(3))
        self._capacity = capacity
        if self._length > 0:
            kept = slice(self._length)
            in_memory_order(self._keys)[:, :, kept] = in_memory_order(old_keys)[:, :, kept]
            self._values[:, :, kept] = old_values[:, :, kept]

    def select(self, sentences: Tensor) -> None:
        """Keep these sentences, given as indices into ``batch``, in this order."""
        if self._length > 0:
            self._keys = self._keys.index_select(0, sentences)
            self._values = self._values.index_select(0, sentences)
