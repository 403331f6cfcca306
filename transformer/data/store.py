"""Encoded pairs on disk: one memory map that every process of a machine shares."""

from __future__ import annotations

import itertools
from array import array
from collections.abc import Iterable, Sequence
from pathlib import Path

import numpy as np
import numpy.typing as npt

from transformer.config import PAD_ID
from transformer.errors import InputError

_OFFSETS_FILE = "offsets.npy"
_TOKENS_FILES = {"tokens.u16": np.uint16, "tokens.u32": np.uint32}

Tokens = npt.NDArray[np.integer]
Integers = npt.NDArray[np.int64]


class EncodedPairs:
    """Pairs of sentences as word-pieces, each ending with the end-of-sentence id.

    Args:
        tokens: of all pairs, source and target in turn
        offsets: ``(1 + 2 * pairs,)``, where each sentence begins, and where the last one ends
    """

    def __init__(self, tokens: Tokens, offsets: Integers) -> None:
        self._tokens, self._offsets = tokens, offsets
        self.lengths: Integers = np.diff(offsets).reshape(-1, 2)
        """``(pairs, 2)``: word-pieces of source and target, their end included."""

    def __len__(self) -> int:
        return len(self.lengths)

    def __getitem__(self, pair: int) -> tuple[Tokens, Tokens]:
        start, middle, end = self._offsets[2 * pair : 2 * pair + 3]
        return self._tokens[start:middle], self._tokens[middle:end]

    def padded(self, pairs: Integers, side: int) -> Integers:
        """The sources (side 0) or targets (1) of ``pairs``, padded behind: ``(batch, longest)``.

        All at once: a loop over the pairs takes several times as long.
        """
        lengths = self.lengths[pairs, side]
        ends = lengths.cumsum()
        places = np.arange(ends[-1]) + np.repeat(
            self._offsets[2 * pairs + side] - ends + lengths, lengths
        )
        sentences = np.full((len(pairs), lengths.max()), PAD_ID, dtype=np.int64)
        sentences[np.arange(lengths.max()) < lengths[:, None]] = self._tokens[places]
        return sentences


class PairsInMemory(EncodedPairs):
    """A few pairs, such as a text to score."""

    def __init__(self, sources: Sequence[list[int]], targets: Sequence[list[int]]) -> None:
        sentences = [side for pair in zip(sources, targets, strict=True) for side in pair]
        offsets = np.cumsum([0, *map(len, sentences)], dtype=np.int64)
        tokens = np.fromiter(itertools.chain.from_iterable(sentences), np.int64, offsets[-1])
        super().__init__(tokens, offsets)


class TokenStore(EncodedPairs):
    """Encoded pairs in a folder, each pair contiguous: source, then target.

    Raises:
        InputError: if the directory holds no store, or one cut short.
    """

    def __init__(self, directory: Path) -> None:
        try:
            offsets = np.load(directory / _OFFSETS_FILE, mmap_mode="r")
            (path,) = (directory / name for name in _TOKENS_FILES if (directory / name).exists())
            tokens = np.memmap(path, dtype=_TOKENS_FILES[path.name], mode="r")
        except (OSError, EOFError, ValueError) as error:
            raise InputError(f"{directory} holds no token store; remove it ({error})") from error
        if offsets[-1] != len(tokens):
            raise InputError(f"{directory} is damaged: the tokens are cut short; remove it")
        super().__init__(tokens, offsets)


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
