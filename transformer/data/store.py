"""Encoded pairs on disk: one memory map that every process of a machine shares."""

from __future__ import annotations

from array import array
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Protocol

import numpy as np
import numpy.typing as npt

from transformer.errors import InputError

_OFFSETS_FILE = "offsets.npy"
_TOKENS_FILES = {"tokens.u16": np.uint16, "tokens.u32": np.uint32}

Tokens = npt.NDArray[np.integer]


class EncodedPairs(Protocol):
    """Pairs of sentences as word-pieces, each ending with the end-of-sentence id.

    ``lengths`` is ``(pairs, 2)``: word-pieces of source and target, that end included.
    """

    lengths: npt.NDArray[np.int64]

    def __getitem__(self, pair: int) -> tuple[Tokens, Tokens]: ...


class PairsInMemory:
    """A few pairs, such as a text to score."""

    def __init__(self, sources: Sequence[list[int]], targets: Sequence[list[int]]) -> None:
        self._pairs = [(np.array(s), np.array(t)) for s, t in zip(sources, targets, strict=True)]
        self.lengths = np.array([(len(s), len(t)) for s, t in self._pairs], dtype=np.int64)

    def __getitem__(self, pair: int) -> tuple[Tokens, Tokens]:
        return self._pairs[pair]


class TokenStore:
    """Encoded pairs in a folder, each pair contiguous: source, then target.

    Raises:
        InputError: if the directory holds no store, or one cut short.
    """

    def __init__(self, directory: Path) -> None:
        try:
            self._offsets = np.load(directory / _OFFSETS_FILE, mmap_mode="r")
            (path,) = (directory / name for name in _TOKENS_FILES if (directory / name).exists())
            self._tokens = np.memmap(path, dtype=_TOKENS_FILES[path.name], mode="r")
        except (OSError, EOFError, ValueError) as error:
            raise InputError(f"{directory} holds no token store; remove it ({error})") from error
        if self._offsets[-1] != len(self._tokens):
            raise InputError(f"{directory} is damaged: the tokens are cut short; remove it")
        self.lengths: npt.NDArray[np.int64] = np.diff(self._offsets).reshape(-1, 2)

    def __len__(self) -> int:
        return len(self.lengths)

    def __getitem__(self, pair: int) -> tuple[Tokens, Tokens]:
        start, middle, end = self._offsets[2 * pair : 2 * pair + 3]
        return self._tokens[start:middle], self._tokens[middle:end]


def write_store(
    directory: Path, pairs: Iterable[tuple[list[int], list[int]]], vocab_size: int
) -> int:
    """Write ``pairs`` into an existing directory and return how many there were."""
    name, code = ("tokens.u16", "H") if vocab_size <= 2**16 else ("tokens.u32", "I")
    offsets = array("q", [0])
    with (directory / name).open("wb") as file:
        for source, target in pairs:
            array(code, source + target).tofile(file)
            offsets.append(offsets[-1] + len(source))
            offsets.append(offsets[-1] + len(target))
    np.save(directory / _OFFSETS_FILE, np.frombuffer(offsets, dtype=np.int64))
    return len(offsets) // 2
