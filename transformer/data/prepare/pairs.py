"""The usable training pairs, clean and encoded."""

from __future__ import annotations

import hashlib
import itertools
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from transformer.config import DataConfig
from transformer.data.fetch.cache import making
from transformer.data.store import Pair, write_store
from transformer.data.text import MAX_LINE, aligned_lines, normalise
from transformer.data.vocabulary import Vocabulary
from transformer.errors import InputError
from transformer.files import read_json, write_json
from transformer.progress import show_progress

# Pairs read or encoded at a time, which takes about a second.
CHUNK_PAIRS = 20_000
# A file with a larger share of undecodable lines is in another encoding altogether.
_MAX_INVALID = 0.1
_SAMPLE_SEED = 2017
_TEXT_FILE, _FATES_FILE = "clean.txt", "fates.json"

KEPT = "kept"
INVALID = "invalid UTF-8"
NUL = "NUL character"
EMPTY = "empty side"
OVERLONG = "overlong line"
DUPLICATE = "duplicate"
TOO_LONG = "too long"
UNEQUAL = "lengths too unequal"

LocalText = tuple[Path, Path]


@dataclass(frozen=True, slots=True)
class CleanText:
    """A file of the usable pairs, alternately a source and a target line.

    ``fates`` counts, for each training text, the pairs kept and those dropped by reason.
    """

    path: Path
    fates: list[Counter[str]]

    @property
    def pairs(self) -> int:
        """The number of pairs."""
        return sum(fates[KEPT] for fates in self.fates)

    def chunks(self) -> Iterator[tuple[int, list[str]]]:
        """The number of the training text, and both lines of some pairs of it, in order."""
        lines = self._lines()
        for number, fates in enumerate(self.fates):
            for first in range(0, fates[KEPT], CHUNK_PAIRS):
                pairs = min(CHUNK_PAIRS, fates[KEPT] - first)
                yield number, list(itertools.islice(lines, 2 * pairs))

    def sample(self, count: int) -> Iterator[str]:
        """Both lines of at most ``count`` pairs, one drawn from each of as many equal parts of the
        text; the same pairs at every call.
        """
        count = min(count, self.pairs)
        bounds = np.arange(count + 1) * self.pairs // count
        drawn = np.random.default_rng(_SAMPLE_SEED).integers(bounds[:-1], bounds[1:])
        lines, read = self._lines(), 0
        for pair in drawn.tolist():
            start = 2 * (pair - read)
            yield from itertools.islice(lines, start, start + 2)
            read = pair + 1

    def _lines(self) -> Iterator[str]:
        with self.path.open(encoding="utf-8", newline="\n") as file:
            yield from (line.removesuffix("\n") for line in file)


def clean(texts: Sequence[LocalText], directory: Path, *, drop_duplicates: bool) -> CleanText:
    """The usable pairs of all texts, written into ``directory`` unless it exists."""
    if not directory.exists():
        with making(directory) as part:
            part.mkdir()
            fates = _write(texts, part / _TEXT_FILE, drop_duplicates)
            _check(texts, fates)
            write_json(part / _FATES_FILE, {"texts": fates})
    fates = [Counter(fates) for fates in read_json(directory / _FATES_FILE)["texts"]]
    return CleanText(directory / _TEXT_FILE, fates)


def _write(texts: Sequence[LocalText], path: Path, drop_duplicates: bool) -> list[Counter[str]]:
    fates = [Counter[str]() for _ in texts]
    sizes = [source.stat().st_size for source, _ in texts]
    # Hashes of 64 bits: among 36 million pairs two different ones are equal with probability 4e-5.
    seen: set[bytes] = set()
    with path.open("wb") as out, show_progress("cleaning", max(1, sum(sizes))) as update:
        for number, (source, target) in enumerate(texts):
            for sources, targets, read in aligned_lines(source, target, CHUNK_PAIRS):
                for pair in zip(sources, targets, strict=True):
                    text, fate = clean_pair(*pair)
                    if drop_duplicates and fate == KEPT:
                        key = hashlib.blake2b(text, digest_size=8).digest()
                        text, fate = (b"", DUPLICATE) if key in seen else (text, KEPT)
                        seen.add(key)
                    fates[number][fate] += 1
                    out.write(text)
                update(sum(sizes[:number]) + read)
    return fates


def clean_pair(source: bytes, target: bytes) -> tuple[bytes, str]:
    """Both lines with single spaces, and ``KEPT``, or nothing and why the pair is dropped."""
    if b"\0" in source or b"\0" in target:
        return b"", NUL
    if len(source) > MAX_LINE or len(target) > MAX_LINE:
        return b"", OVERLONG
    try:
        pair = normalise(source.decode("utf-8")), normalise(target.decode("utf-8"))
    except UnicodeDecodeError:
        return b"", INVALID
    return (f"{pair[0]}\n{pair[1]}\n".encode(), KEPT) if all(pair) else (b"", EMPTY)


def _check(texts: Sequence[LocalText], fates: Sequence[Counter[str]]) -> None:
    for (source, target), found in zip(texts, fates, strict=True):
        if found[INVALID] > _MAX_INVALID * found.total():
            raise InputError(
                f"{source} or {target}: {found[INVALID]} of {found.total()} lines are not UTF-8; "
                "convert the file"
            )
    if not any(found[KEPT] for found in fates):
        source, target = texts[0]
        raise InputError(f"{source} and {target} hold no usable pair: the corpus is empty")


def encode(
    text: CleanText, vocabulary: Vocabulary, limits: DataConfig, directory: Path
) -> list[Counter[str]]:
    """Write the store of ``text`` into a new ``directory``.

    Returns:
        For each training text, the number of pairs kept and of those dropped by reason.
    """
    fates = [Counter[str]() for _ in text.fates]

    def encoded() -> Iterator[list[Pair]]:
        done = 0
        for number, lines in text.chunks():
            sides = vocabulary.encode(lines)
            pairs = list(zip(sides[::2], sides[1::2], strict=True))
            found = [_fate(pair, limits) for pair in pairs]
            fates[number].update(found)
            yield [pair for pair, fate in zip(pairs, found, strict=True) if fate == KEPT]
            update(done := done + len(pairs))

    directory.mkdir()
    with show_progress("encoding", text.pairs) as update:
        write_store(directory, encoded(), len(vocabulary))
    return fates


def _fate(pair: Pair, limits: DataConfig) -> str:
    shorter, longer = sorted(map(len, pair))
    if longer > limits.max_length:
        return TOO_LONG
    ratio = limits.max_length_ratio
    return UNEQUAL if ratio is not None and longer > ratio * shorter else KEPT
