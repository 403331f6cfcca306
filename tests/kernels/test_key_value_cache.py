"""The key/value cache against the concatenation of everything that was appended."""

from __future__ import annotations

import torch

from transformer.kernels.key_value_cache import KeyValueCache

BATCH, HEADS, D_K, D_V = 5, 3, 11, 13


def test_all_entries_are_returned_while_it_grows() -> None:
    """Two hypotheses per step, to several times the initial capacity."""
    cache = KeyValueCache()
    keys, values = torch.randn(BATCH, HEADS, 2 * 71, D_K), torch.randn(BATCH, HEADS, 2 * 71, D_V)
    for step in range(71):
        new = slice(2 * step, 2 * step + 2)
        found_keys, found_values = cache.append(keys[:, :, new], values[:, :, new])
        assert torch.equal(found_keys, keys[:, :, : new.stop])
        assert torch.equal(found_values, values[:, :, : new.stop])


def test_a_gpu_reads_each_key_in_one_piece() -> None:
    """Its fused kernels take no other order. Tensors without contents stand for those of a GPU."""
    cache = KeyValueCache()
    new_keys = torch.empty(BATCH, HEADS, 2, D_K, device="meta")
    new_values = torch.empty(BATCH, HEADS, 2, D_V, device="meta")
    keys = values = new_keys
    for _ in range(71):
        keys, values = cache.append(new_keys, new_values)
    assert keys.shape == (BATCH, HEADS, 142, D_K)
    assert keys.stride()[2:] == (D_K, 1) and values.stride()[2:] == (D_V, 1)
