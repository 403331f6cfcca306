"""The token store on disk."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from transformer.data.store import PairsInMemory, TokenStore, write_store

PAIRS = [([5, 7, 3], [11, 3]), ([3], [13, 17, 19, 3]), ([65_535, 3], [3])]


@pytest.mark.parametrize(("vocab_size", "width"), [(65_536, 2), (65_537, 4), (13, 2)])
def test_what_is_written_is_read(vocab_size: int, width: int, tmp_path: Path) -> None:
    write_store(tmp_path, iter(PAIRS), vocab_size)
    store = TokenStore(tmp_path)
    assert len(store) == 3
    assert store.lengths.tolist() == [[3, 2], [1, 4], [2, 1]]
    assert [tuple(map(np.ndarray.tolist, store[i])) for i in range(3)] == PAIRS
    (tokens,) = tmp_path.glob("tokens.*")
    assert tokens.stat().st_size == width * 13
    memory = PairsInMemory([s for s, _ in PAIRS], [t for _, t in PAIRS])
    assert memory.lengths.tolist() == store.lengths.tolist()
    assert [tuple(map(np.ndarray.tolist, memory[i])) for i in range(3)] == PAIRS


def test_ids_above_two_bytes(tmp_path: Path) -> None:
    write_store(tmp_path, [([65_536, 70_001], [3])], 70_002)
    assert TokenStore(tmp_path)[0][0].tolist() == [65_536, 70_001]
