"""The clean text as a training store."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from contextlib import ExitStack
from functools import lru_cache, partial
from pathlib import Path

import numpy as np
import numpy.typing as npt

from transformer.config import EOS_ID, DataConfig
from transformer.data.prepare.clean import KEPT, CleanText
from transformer.data.prepare.parallel import map_in_order
from transformer.data.store import starts_of, store_files
from transformer.data.vocabulary import SPACE_SYMBOL, Vocabulary
from transformer.progress import show_progress

DUPLICATE = "duplicate"
TOO_LONG = "too long"
UNEQUAL = "lengths too unequal"
# Words that an encoder caches, some 200 bytes each.
_MAX_WORDS = 300_000
# Pairs whose hashes are compared at a time, and read at a time.
_COMPARED_PAIRS = 2**21
_READ_PAIRS = 2**20

Flags = npt.NDArray[np.bool_]
# The number of the training text, both lines of some pairs of it, and which are duplicates.
_Task = tuple[int, bytes, Flags | None]


def encode(
    text: CleanText, vocabulary: Path, limits: DataConfig, directory: Path, *, workers: int
) -> list[Counter[str]]:
    """Write the store of ``text`` into a new ``directory``.

    Returns:
        For each training text, how many pairs were kept and how many dropped for which reason.
    """
    directory.mkdir()
    files, kind = store_files(directory, len(Vocabulary(vocabulary)))
    fates = [Counter[str]() for _ in text.fates]
    tokens = done = 0
    with ExitStack() as stack:
        outputs = [stack.enter_context(file.open("wb")) for file in files]
        update = stack.enter_context(show_progress("encoding", text.pairs))
        tasks = _tasks(text, limits.drop_duplicates)
        work = partial(_encode, vocabulary, limits)
        for number, parts, found in map_in_order(work, tasks, workers):
            lengths = np.frombuffer(parts[1], dtype=np.uint32).reshape(-1, 2)
            starts = starts_of(lengths, tokens).tobytes()
            for output, part in zip(outputs, (*parts, starts), strict=True):
                output.write(part)
            tokens += len(parts[0]) // kind.itemsize
            fates[number] += found
            update(done := done + found.total())
    _encoder.cache_clear()
    return fates


def _tasks(text: CleanText, drop_duplicates: bool) -> Iterator[_Task]:
    """The chunks of the text, each with the flags of its duplicates if these are to be dropped."""
    duplicates = find_duplicates(text.hashes) if drop_duplicates else None
    first = 0
    for number, content in text.chunks():
        end = first + content.count(b"\n") // 2
        yield number, content, None if duplicates is None else duplicates[first:end]
        first = end


def find_duplicates(hashes: Path) -> Flags:
    """A flag for each pair that equals an earlier one, by 64-bit hashes, in little memory.

    Among 36 million pairs the probability that two different ones have equal hashes is 4e-5.
    """
    values = np.memmap(hashes, dtype=np.uint64, mode="r")
    duplicates = np.zeros(len(values), dtype=np.bool_)
    groups = -(-len(values) // _COMPARED_PAIRS)
    for group in range(groups):
        parts = ((i, values[i : i + _READ_PAIRS]) for i in range(0, len(values), _READ_PAIRS))
        places = np.concatenate(
            [start + np.flatnonzero(part % np.uint64(groups) == group) for start, part in parts]
        )
        _, first = np.unique(values[places], return_index=True)
        duplicates[places] = True
        duplicates[places[first]] = False
    return duplicates


def _encode(
    vocabulary: Path, limits: DataConfig, task: _Task
) -> tuple[int, tuple[bytes, bytes], Counter[str]]:
    """Tokens and lengths of a chunk, as the store holds them, and its pairs by fate."""
    number, content, duplicates = task
    encoder = _encoder(vocabulary)
    lines = content.decode().split("\n")
    fates: Counter[str] = Counter()
    tokens: list[bytes] = []
    lengths: list[int] = []
    for pair, sides in enumerate(zip(lines[0:-1:2], lines[1::2], strict=True)):
        if duplicates is not None and duplicates[pair]:
            fates[DUPLICATE] += 1
            continue
        encoded = [encoder.encode(side) for side in sides]
        pieces = [len(side) // encoder.item_size for side in encoded]
        fate = _fate(pieces, limits)
        fates[fate] += 1
        if fate == KEPT:
            tokens += encoded
            lengths += pieces
    return number, (b"".join(tokens), np.array(lengths, dtype=np.uint32).tobytes()), fates


def _fate(pieces: list[int], limits: DataConfig) -> str:
    longer, shorter = max(pieces), min(pieces)
    if longer > limits.max_length:
        return TOO_LONG
    ratio = limits.max_length_ratio
    return UNEQUAL if ratio is not None and longer > ratio * shorter else KEPT


class WordByWord(dict[str, bytes]):
    """Encodes lines to the bytes of a store, with a cache of words.

    No word-piece extends across a space, so a line's word-pieces are those of its words. Most words
    have been seen before, which makes this several times as fast as encoding whole lines. Only a
    line that contains sentencepiece's symbol for a space must be encoded as a whole.
    """

    def __init__(self, vocabulary: Vocabulary) -> None:
        super().__init__()
        self._vocabulary = vocabulary
        self._kind = store_files(Path(), len(vocabulary))[1]
        self._end = np.array([EOS_ID], dtype=self._kind).tobytes()
        self.item_size: int = self._kind.itemsize

    def encode(self, line: str) -> bytes:
        """The word-pieces of ``line``, whose words are separated by single spaces, and its end."""
        if SPACE_SYMBOL in line or not line:
            return np.array(self._vocabulary.encode([line])[0], dtype=self._kind).tobytes()
        return b"".join(map(self.__getitem__, line.split(" "))) + self._end

    def __missing__(self, word: str) -> bytes:
        ids = np.array(self._vocabulary.encode_word(word), dtype=self._kind).tobytes()
        if len(self) < _MAX_WORDS:
            self[word] = ids
        return ids


@lru_cache(maxsize=1)
def _encoder(vocabulary: Path) -> WordByWord:
    """One per process, since the cache of words pays off with time."""
    return WordByWord(Vocabulary(vocabulary))
