"""The usable pairs of all training texts written to one file, and the dropped ones counted."""

from __future__ import annotations

import hashlib
import itertools
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import numpy as np

from transformer.data.preparation.journal import Journal, Record
from transformer.data.preparation.workers import map_in_order, useful_workers
from transformer.data.text import MAX_LINE, Lines, aligned_lines, normalise
from transformer.errors import InputError
from transformer.progress import show_progress

# What a process works on at a time, and what a kill may lose: tenths of a second.
CHUNK_PAIRS = 20_000
_CHUNK_BYTES = 100 * CHUNK_PAIRS
# A file with a larger share of undecodable lines is in another encoding altogether.
_MAX_INVALID = 0.1
_SAMPLE_SEED = 2017

KEPT = "kept"
INVALID = "invalid UTF-8"
NUL = "NUL character"
EMPTY = "empty side"
OVERLONG = "overlong line"
HASH_BYTES = 8

LocalText = tuple[Path, Path]


@dataclass(frozen=True, slots=True)
class CleanChunk:
    """A byte range of the clean text, the training text it is from, and the fates of its pairs."""

    text: int
    start: int
    end: int
    fates: Counter[str]


@dataclass(frozen=True, slots=True)
class CleanText:
    """A file of the usable pairs, alternately a source and a target line.

    ``hashes``, if requested, holds 8 bytes per pair.
    """

    path: Path
    hashes: Path | None
    chunks: list[CleanChunk]

    @property
    def pairs(self) -> int:
        """The number of pairs."""
        return sum(chunk.fates[KEPT] for chunk in self.chunks)

    def sample(self, count: int) -> Iterator[str]:
        """Both lines of at most ``count`` pairs, one drawn from each of as many equal parts of the
        text; the same pairs at every call.
        """
        count = min(count, self.pairs)
        bounds = np.arange(count + 1) * self.pairs // count
        drawn = np.random.default_rng(_SAMPLE_SEED).integers(bounds[:-1], bounds[1:])
        with self.path.open(encoding="utf-8", newline="\n") as file:
            read = 0
            for pair in drawn.tolist():
                start = 2 * (pair - read)
                lines = itertools.islice(file, start, start + 2)
                yield from (line.removesuffix("\n") for line in lines)
                read = pair + 1


def clean(
    texts: Sequence[LocalText], directory: Path, *, with_hashes: bool, workers: int
) -> CleanText:
    """Write the usable pairs of all texts into ``directory``; continue where a kill ended it.

    Raises:
        InputError: if two files have different numbers of lines, more than a tenth of a text is not
            UTF-8, or no pair is left.
    """
    path, hashes = directory / "clean.txt", directory / "hashes.u64" if with_hashes else None
    files = [path] if hashes is None else [path, hashes]
    with Journal(directory / "cleaning.journal", files) as journal:
        if not journal.is_complete:
            _clean_all(texts, journal, workers, with_hashes)
        chunks = _chunks(journal)
    _check(texts, chunks)
    return CleanText(path, hashes, chunks)


def _clean_all(
    texts: Sequence[LocalText], journal: Journal, workers: int, with_hashes: bool
) -> None:
    done = len(journal.records)
    work = itertools.islice(_read(texts), done, None)
    size = sum(source.stat().st_size for source, _ in texts)
    workers = useful_workers(workers, size // _CHUNK_BYTES)
    before = journal.records[-1]["read"] if done else 0
    with show_progress("cleaning", max(1, size), before) as update:
        for parts, record in map_in_order(partial(_clean_chunk, with_hashes), work, workers):
            journal.append(parts, record)
            update(record["read"])
    journal.complete()


def _clean_chunk(with_hashes: bool, item: tuple[int, int, Lines]) -> tuple[list[bytes], Record]:
    text, read, lines = item
    parts, fates = clean_lines(lines, with_hashes=with_hashes)
    return parts, {"text": text, "read": read, "fates": fates}


def _read(texts: Sequence[LocalText]) -> Iterator[tuple[int, int, Lines]]:
    """The number of the text, the bytes read of all source files so far, and the lines."""
    before = 0
    for number, (source, target) in enumerate(texts):
        for lines in aligned_lines(source, target, CHUNK_PAIRS):
            yield number, before + lines.read, lines
        before += source.stat().st_size


def _chunks(journal: Journal) -> list[CleanChunk]:
    ends = [sizes[0] for sizes in journal.sizes]
    return [
        CleanChunk(record["text"], start, end, Counter(record["fates"]))
        for record, start, end in zip(journal.records, [0, *ends], ends, strict=False)
    ]


def _check(texts: Sequence[LocalText], chunks: Sequence[CleanChunk]) -> None:
    for number, (source, target) in enumerate(texts):
        fates: Counter[str] = sum((c.fates for c in chunks if c.text == number), Counter())
        if fates[INVALID] > _MAX_INVALID * fates.total():
            raise InputError(
                f"{source} or {target}: {fates[INVALID]} of {fates.total()} lines are not UTF-8; "
                "convert the file"
            )
    if not any(chunk.fates[KEPT] for chunk in chunks):
        source, target = texts[0]
        raise InputError(f"{source} and {target} hold no usable pair: the corpus is empty")


def clean_lines(lines: Lines, *, with_hashes: bool) -> tuple[list[bytes], Counter[str]]:
    """The usable pairs among ``lines`` as bytes, with their hashes if requested, and the number of
    pairs by fate.
    """
    fates: Counter[str] = Counter()
    kept: list[bytes] = []
    for pair in zip(lines.source, lines.target, strict=True):
        text, fate = _clean(*pair)
        fates[fate] += 1
        if fate == KEPT:
            kept.append(text)
    parts = [b"".join(kept)]
    if with_hashes:
        hashes = (hashlib.blake2b(text, digest_size=HASH_BYTES).digest() for text in kept)
        parts.append(b"".join(hashes))
    return parts, fates


def _clean(source: bytes, target: bytes) -> tuple[bytes, str]:
    if b"\0" in source or b"\0" in target:
        return b"", NUL
    if len(source) > MAX_LINE or len(target) > MAX_LINE:
        return b"", OVERLONG
    try:
        pair = normalise(source.decode("utf-8")), normalise(target.decode("utf-8"))
    except UnicodeDecodeError:
        return b"", INVALID
    return (f"{pair[0]}\n{pair[1]}\n".encode(), KEPT) if all(pair) else (b"", EMPTY)
