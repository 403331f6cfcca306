"""Encoded pairs on disk, memory-mapped and so shared by processes."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import chain
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from transformer.config import PAD_ID

_TOKENS_FILES = {"tokens.u16": np.dtype(np.uint16), "tokens.u32": np.dtype(np.uint32)}
# Of a side that is scored or translated: attention takes memory with the square of its length.
MAX_PIECES = 2_048
LENGTHS_FILE, _STARTS_FILE = "lengths.u32", "starts.u64"
BYTES_PER_PAIR = 8  # of lengths: 32 bits for each side

Tokens = npt.NDArray[np.integer]
Integers = npt.NDArray[np.int64]
# The word-pieces of a source and of its target.
Pair = tuple[list[int], list[int]]


class EncodedPairs:
    """Pairs of sentences as word-pieces, each ending with the end-of-sentence id.

    Args:
        tokens: of all pairs, each source followed by its target
        lengths: ``(pairs, 2)``, word-pieces of source and target, ends included
        starts: ``(pairs,)``, where each source begins
    """

    def __init__(self, tokens: Tokens, lengths: Tokens, starts: Tokens) -> None:
        # As plain arrays: indexing a np.memmap takes several times as long.
        self._tokens, self._starts = np.asarray(tokens), np.asarray(starts)
        self.lengths: Tokens = np.asarray(lengths)

    @classmethod
    def of(cls, pairs: Sequence[Pair]) -> EncodedPairs:
        """Pairs that are not stored on disk, such as a text to score."""
        tokens, lengths = _joined(pairs, np.dtype(np.int64))
        return cls(tokens, lengths, starts_of(lengths, 0))

    @classmethod
    def open(cls, directory: Path) -> EncodedPairs:
        """Pairs in a folder, memory-mapped, so that opening is quick at any size."""
        (path,) = directory.glob("tokens.*")
        tokens = np.memmap(path, _TOKENS_FILES[path.name], "r")
        lengths = np.memmap(directory / LENGTHS_FILE, np.uint32, "r").reshape(-1, 2)
        return cls(tokens, lengths, np.memmap(directory / _STARTS_FILE, np.uint64, "r"))

    def __len__(self) -> int:
        return len(self.lengths)

    def __getitem__(self, pair: int) -> tuple[Tokens, Tokens]:
        start = int(self._starts[pair])
        middle, end = (start + self.lengths[pair].astype(np.int64).cumsum()).tolist()
        return self._tokens[start:middle], self._tokens[middle:end]

    def scored(self) -> Integers:
        """The pairs that are scored, during training and after it: no side is overlong."""
        return np.flatnonzero(self.lengths.max(axis=1, initial=0) <= MAX_PIECES)

    def padded(self, pairs: Integers, side: int) -> Integers:
        """The sources (side 0) or targets (1) of ``pairs``, right-padded: ``(batch, longest)``.

        Vectorised, because a loop over the pairs takes several times as long.
        """
        lengths = self.lengths[pairs, side].astype(np.int64)
        sentences = np.full((len(pairs), lengths.max()), PAD_ID, dtype=np.int64)
        sentences[np.arange(lengths.max()) < lengths[:, None]] = self.joined(pairs, side)
        return sentences

    def joined(self, pairs: Integers, side: int) -> Tokens:
        """The sources (side 0) or targets (1) of ``pairs``, one after another."""
        both = self.lengths[pairs].astype(np.int64)
        lengths = both[:, side]
        begins = self._starts[pairs].astype(np.int64) + (both[:, 0] if side else 0)
        ends = lengths.cumsum()
        places = np.arange(ends[-1]) + np.repeat(begins - ends + lengths, lengths)
        return self._tokens[places]


def _joined(pairs: Sequence[Pair], kind: np.dtype[Any]) -> tuple[Tokens, npt.NDArray[np.uint32]]:
    """The tokens and the lengths of some pairs."""
    lengths = np.array([[len(side) for side in pair] for pair in pairs], np.uint32).reshape(-1, 2)
    ids = chain.from_iterable(chain.from_iterable(pairs))
    return np.fromiter(ids, kind, int(lengths.sum())), lengths


def starts_of(lengths: Tokens, first: int) -> npt.NDArray[np.uint64]:
    """The places of pairs of these lengths if the first one begins at ``first``."""
    sizes = lengths.sum(axis=1, dtype=np.uint64)
    return np.uint64(first) + sizes.cumsum(dtype=np.uint64) - sizes


def write_store(directory: Path, chunks: Iterable[Sequence[Pair]], vocab_size: int) -> None:
    """Write pairs, some at a time, into an existing directory."""
    name = "tokens.u16" if vocab_size <= 2**16 else "tokens.u32"
    written = 0
    with (
        (directory / name).open("wb") as tokens_file,
        (directory / LENGTHS_FILE).open("wb") as lengths_file,
        (directory / _STARTS_FILE).open("wb") as starts_file,
    ):
        for pairs in chunks:
            tokens, lengths = _joined(pairs, _TOKENS_FILES[name])
            tokens_file.write(tokens.tobytes())
            lengths_file.write(lengths.tobytes())
            starts_file.write(starts_of(lengths, written).tobytes())
            written += len(tokens)
