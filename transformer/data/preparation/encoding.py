"""The clean text encoded into the training store, without duplicates and overlong pairs."""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path

import numpy as np
import numpy.typing as npt

from transformer.config import EOS_ID
from transformer.data.preparation.cleaning import KEPT, CleanChunk, CleanText
from transformer.data.preparation.journal import Journal
from transformer.data.preparation.workers import map_in_order, useful_workers
from transformer.data.prepared import TextReport
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


@dataclass(frozen=True, kw_only=True, slots=True)
class Encoding:
    """How pairs are encoded and filtered.

    ``max_length`` is in word-pieces; ``max_length_ratio`` is the longer side over the shorter, None
    for no limit.
    """

    vocabulary: Path
    max_length: int
    max_length_ratio: float | None


@dataclass(frozen=True, slots=True)
class _Task:
    encoding: Encoding
    path: Path
    chunk: CleanChunk
    duplicates: Flags | None


def encode(
    text: CleanText, encoding: Encoding, directory: Path, work: Path, *, workers: int
) -> list[Counter[str]]:
    """Write the store of ``text`` into ``directory``; continue where a kill ended it.

    Args:
        work: a folder for the journal, from which a later start continues

    Returns:
        For each chunk, how many pairs were kept and how many dropped for which reason.
    """
    directory.mkdir(exist_ok=True)
    files, _ = store_files(directory, len(Vocabulary(encoding.vocabulary)))
    with Journal(work / "encoding.journal", files) as journal:
        if not journal.is_complete:
            _encode_all(text, encoding, journal, useful_workers(workers, len(text.chunks)))
        return [Counter(record) for record in journal.records]


def text_report(
    name: str, text: CleanText, number: int, fates: Sequence[Counter[str]]
) -> TextReport:
    """What became of the ``number``-th training text; ``fates`` are those of :func:`encode`."""
    read: Counter[str] = Counter()
    encoded: Counter[str] = Counter()
    for chunk, fate in zip(text.chunks, fates, strict=True):
        if chunk.text == number:
            read += chunk.fates
            encoded += fate
    dropped = {k: v for k, v in (read + encoded).items() if k != KEPT}
    return TextReport(
        split="train",
        text=name,
        lines=read.total(),
        kept=encoded[KEPT],
        dropped=dict(sorted(dropped.items())),
    )


def _encode_all(text: CleanText, encoding: Encoding, journal: Journal, workers: int) -> None:
    done = len(journal.records)
    item_size = store_files(Path(), len(Vocabulary(encoding.vocabulary)))[1].itemsize
    tokens = journal.sizes[-1][0] // item_size if done else 0
    tasks = itertools.islice(_tasks(text, encoding), done, None)
    encoded = sum(chunk.fates[KEPT] for chunk in text.chunks[:done])
    with show_progress("encoding", text.pairs, encoded) as update:
        for parts, fates in map_in_order(_encode_chunk, tasks, workers):
            lengths = np.frombuffer(parts[1], dtype=np.uint32).reshape(-1, 2)
            journal.append([*parts, starts_of(lengths, tokens).tobytes()], fates)
            tokens += int(lengths.sum())
            encoded += fates.total()
            update(encoded)
    journal.complete()
    _encoder.cache_clear()


def _tasks(text: CleanText, encoding: Encoding) -> Iterator[_Task]:
    duplicates = None if text.hashes is None else find_duplicates(text.hashes)
    first = 0
    for chunk in text.chunks:
        end = first + chunk.fates[KEPT]
        flags = None if duplicates is None else duplicates[first:end]
        yield _Task(encoding, text.path, chunk, flags)
        first = end


def find_duplicates(hashes: Path) -> Flags:
    """Which pairs equal an earlier one, by their 64-bit hashes, in little memory.

    Among 36 million pairs the probability that two different ones have equal hashes is 4e-5.
    """
    values = np.fromfile(hashes, dtype=np.uint64, count=0)
    if hashes.stat().st_size:
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


def _encode_chunk(task: _Task) -> tuple[list[bytes], Counter[str]]:
    encoder = _encoder(task.encoding.vocabulary)
    with task.path.open("rb") as file:
        file.seek(task.chunk.start)
        lines = file.read(task.chunk.end - task.chunk.start).decode().split("\n")
    fates: Counter[str] = Counter()
    tokens: list[bytes] = []
    lengths: list[int] = []
    for pair, sides in enumerate(zip(lines[0:-1:2], lines[1::2], strict=True)):
        if task.duplicates is not None and task.duplicates[pair]:
            fates[DUPLICATE] += 1
            continue
        encoded = [encoder.encode(side) for side in sides]
        pieces = [len(side) // encoder.item_size for side in encoded]
        fate = _fate(pieces, task.encoding)
        fates[fate] += 1
        if fate == KEPT:
            tokens += encoded
            lengths += pieces
    return [b"".join(tokens), np.array(lengths, dtype=np.uint32).tobytes()], fates


def _fate(pieces: list[int], encoding: Encoding) -> str:
    longer, shorter = max(pieces), min(pieces)
    if longer > encoding.max_length:
        return TOO_LONG
    ratio = encoding.max_length_ratio
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
