"""The token store on disk."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from transformer.data.store import PairsInMemory, TokenStore, write_store
from transformer.errors import InputError

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


def test_ids_beyond_two_bytes_come_back(tmp_path: Path) -> None:
    write_store(tmp_path, [([65_536, 70_001], [3])], 70_002)
    source, _ = TokenStore(tmp_path)[0]
    assert source.tolist() == [65_536, 70_001]


def test_pairs_in_memory_look_the_same() -> None:
    pairs = PairsInMemory([s for s, _ in PAIRS], [t for _, t in PAIRS])
    assert pairs.lengths.tolist() == [[3, 2], [1, 4], [2, 1]]
    assert [tuple(map(np.ndarray.tolist, pairs[i])) for i in range(3)] == PAIRS


def test_a_folder_without_a_store_is_named(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=f"{tmp_path} holds no token store"):
        TokenStore(tmp_path)


@pytest.mark.parametrize("lost", ["lengths.u32", "starts.u64", "tokens.u16"])
def test_a_store_without_one_of_its_files_is_named(lost: str, tmp_path: Path) -> None:
    write_store(tmp_path, PAIRS, 65_536)
    (tmp_path / lost).unlink()
    with pytest.raises(InputError, match=f"{tmp_path} holds no token store; remove it"):
        TokenStore(tmp_path)


@pytest.mark.parametrize("file", ["lengths.u32", "starts.u64", "tokens.u16"])
@pytest.mark.parametrize("left", [0, 2, -2, -1])
def test_a_store_cut_short_is_refused(file: str, left: int, tmp_path: Path) -> None:
    write_store(tmp_path, PAIRS, 65_536)
    path = tmp_path / file
    path.write_bytes(path.read_bytes()[:left])
    with pytest.raises(InputError, match=rf"{tmp_path} .*remove it"):
        TokenStore(tmp_path)
