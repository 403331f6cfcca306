"""Encoded pairs on disk, memory-mapped and so shared by processes."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from transformer.config import PAD_ID
from transformer.errors import InputError

_TOKENS_FILES = {"tokens.u16": np.dtype(np.uint16), "tokens.u32": np.dtype(np.uint32)}
_LENGTHS_FILE, _STARTS_FILE = "lengths.u32", "starts.u64"

Tokens = npt.NDArray[np.integer]
Integers = npt.NDArray[np.int64]


class EncodedPairs:
    """Pairs of sentences as word-pieces, each ending with the end-of-sentence id.

    Args:
        tokens: of all pairs, each source followed by its target
        lengths: ``(pairs, 2)``, word-pieces of source and target, ends included
        starts: ``(pairs,)``, where each source begins
        vocab_size: if given, tokens are checked to be below it
    """

    def __init__(
        self, tokens: Tokens, lengths: Tokens, starts: Tokens, vocab_size: int | None = None
    ) -> None:
        # As plain arrays: indexing a np.memmap takes several times as long.
        self._tokens, self._starts = np.asarray(tokens), np.asarray(starts)
        self.lengths: Tokens = np.asarray(lengths)
        self._vocab_size = vocab_size

    def __len__(self) -> int:
        return len(self.lengths)

    def __getitem__(self, pair: int) -> tuple[Tokens, Tokens]:
        start = int(self._starts[pair])
        middle, end = (start + self.lengths[pair].astype(np.int64).cumsum()).tolist()
        return self._tokens[start:middle], self._tokens[middle:end]

    def padded(self, pairs: Integers, side: int) -> Integers:
        """The sources (side 0) or targets (1) of ``pairs``, right-padded: ``(batch, longest)``.

        Vectorised, because a loop over the pairs takes several times as long.
        """
        both = self.lengths[pairs].astype(np.int64)
        lengths = both[:, side]
        begins = self._starts[pairs].astype(np.int64) + (both[:, 0] if side else 0)
        ends = lengths.cumsum()
        places = np.arange(ends[-1]) + np.repeat(begins - ends + lengths, lengths)
        sentences = np.full((len(pairs), lengths.max()), PAD_ID, dtype=np.int64)
        tokens = self._tokens[places]
        if self._vocab_size is not None and (most := tokens.max()) >= self._vocab_size:
            raise InputError(
                f"the prepared corpus is damaged: it holds token {most}, but the vocabulary ends "
                f"at {self._vocab_size - 1}; python -m experiments verify says which file it is"
            )
        sentences[np.arange(lengths.max()) < lengths[:, None]] = tokens
        return sentences


class PairsInMemory(EncodedPairs):
    """Pairs that are not stored on disk, such as a text to score."""

    def __init__(self, sources: Sequence[list[int]], targets: Sequence[list[int]]) -> None:
        lengths = np.array([list(map(len, sources)), list(map(len, targets))], dtype=np.int64).T
        pairs = zip(sources, targets, strict=True)
        ids = itertools.chain.from_iterable(itertools.chain.from_iterable(pairs))
        tokens = np.fromiter(ids, np.int64, lengths.sum())
        super().__init__(tokens, lengths, starts_of(lengths, 0))


class TokenStore(EncodedPairs):
    """Encoded pairs in a folder, memory-mapped, so that opening is quick at any size."""

    def __init__(self, directory: Path, *, vocab_size: int | None = None) -> None:
        (path,) = directory.glob("tokens.*")
        tokens = np.memmap(path, _TOKENS_FILES[path.name], "r")
        lengths = np.memmap(directory / _LENGTHS_FILE, np.uint32, "r").reshape(-1, 2)
        starts = np.memmap(directory / _STARTS_FILE, np.uint64, "r")
        super().__init__(tokens, lengths, starts, vocab_size)


def store_files(
    directory: Path, vocab_size: int
) -> tuple[list[Path], np.dtype[np.unsignedinteger]]:
    """The files of a store (tokens, lengths and starts) and the type of its tokens."""
    name = "tokens.u16" if vocab_size <= 2**16 else "tokens.u32"
    return [directory / file for file in (name, _LENGTHS_FILE, _STARTS_FILE)], _TOKENS_FILES[name]


def starts_of(lengths: Tokens, first: int) -> npt.NDArray[np.uint64]:
    """The places of pairs of these lengths if the first one begins at ``first``."""
    sizes = lengths.sum(axis=1, dtype=np.uint64)
    return np.uint64(first) + sizes.cumsum(dtype=np.uint64) - sizes


def write_store(
    directory: Path, pairs: Iterable[tuple[list[int], list[int]]], vocab_size: int
) -> None:
    """Write ``pairs``, which fit in memory, into an existing directory."""
    files, kind = store_files(directory, vocab_size)
    sides = list(pairs)
    lengths = np.array([[len(source), len(target)] for source, target in sides], dtype=np.uint32)
    tokens = np.concatenate([np.array(source + target, dtype=kind) for source, target in sides])
    for file, content in zip(files, (tokens, lengths, starts_of(lengths, 0)), strict=True):
        write_array(file, content)


def write_array(path: Path, array: npt.NDArray[Any]) -> None:
    """Write the raw numbers; unlike ``ndarray.tofile``, it reports a full disk as such."""
    with path.open("wb") as file:
        file.write(np.ascontiguousarray(array).data)
