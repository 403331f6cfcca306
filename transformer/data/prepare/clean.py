"""The usable pairs of all training texts."""

from __future__ import annotations

import hashlib
import itertools
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from transformer.data.fetch.cache import making
from transformer.data.prepare.parallel import map_in_order
from transformer.data.text import MAX_LINE, Lines, aligned_lines, normalise
from transformer.errors import InputError
from transformer.files import read_json, write_json
from transformer.progress import show_progress

# What a process works on at a time: tenths of a second.
CHUNK_PAIRS = 20_000
# A file with a larger share of undecodable lines is in another encoding altogether.
_MAX_INVALID = 0.1
_SAMPLE_SEED = 2017
_TEXT_FILE, _HASHES_FILE, _FATES_FILE = "clean.txt", "hashes.u64", "fates.json"

KEPT = "kept"
INVALID = "invalid UTF-8"
NUL = "NUL character"
EMPTY = "empty side"
OVERLONG = "overlong line"

LocalText = tuple[Path, Path]


@dataclass(frozen=True, slots=True)
class CleanText:
    """A file of the usable pairs, alternately a source and a target line.

    ``hashes`` is a file of 8 bytes per pair; ``fates`` are, for each training text, how many of its
    pairs were kept and how many dropped for which reason.
    """

    path: Path
    hashes: Path
    fates: list[Counter[str]]

    @property
    def pairs(self) -> int:
        """The number of pairs."""
        return sum(fates[KEPT] for fates in self.fates)

    def chunks(self) -> Iterator[tuple[int, bytes]]:
        """The number of the training text, and both lines of some pairs of it, in order."""
        with self.path.open("rb") as file:
            for number, fates in enumerate(self.fates):
                for first in range(0, fates[KEPT], CHUNK_PAIRS):
                    pairs = min(CHUNK_PAIRS, fates[KEPT] - first)
                    yield number, b"".join(itertools.islice(file, 2 * pairs))

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


def clean(texts: Sequence[LocalText], directory: Path, *, workers: int) -> CleanText:
    """The usable pairs of all texts, written into ``directory`` unless it exists."""
    if not directory.exists():
        with making(directory) as part:
            part.mkdir()
            fates = _write(texts, part, workers)
            _check(texts, fates)
            write_json(part / _FATES_FILE, {"texts": fates})
    texts_fates = read_json(directory / _FATES_FILE)["texts"]
    return CleanText(
        directory / _TEXT_FILE, directory / _HASHES_FILE, [Counter(fates) for fates in texts_fates]
    )


def _write(texts: Sequence[LocalText], directory: Path, workers: int) -> list[Counter[str]]:
    fates = [Counter[str]() for _ in texts]
    size = sum(source.stat().st_size for source, _ in texts)
    with (
        (directory / _TEXT_FILE).open("wb") as text_file,
        (directory / _HASHES_FILE).open("wb") as hashes_file,
        show_progress("cleaning", max(1, size)) as update,
    ):
        for number, read, (content, hashes, found) in map_in_order(_clean, _read(texts), workers):
            text_file.write(content)
            hashes_file.write(hashes)
            fates[number] += found
            update(read)
    return fates


def _read(texts: Sequence[LocalText]) -> Iterator[tuple[int, int, Lines]]:
    """The number of the text, the bytes read of all source files so far, and the lines."""
    before = 0
    for number, (source, target) in enumerate(texts):
        for lines in aligned_lines(source, target, CHUNK_PAIRS):
            yield number, before + lines.read, lines
        before += source.stat().st_size


def _clean(
    item: tuple[int, int, Lines],
) -> tuple[int, int, tuple[bytes, bytes, Counter[str]]]:
    number, read, lines = item
    return number, read, clean_lines(lines)


def clean_lines(lines: Lines) -> tuple[bytes, bytes, Counter[str]]:
    """The usable pairs among ``lines``, their hashes, and the number of pairs by fate."""
    fates: Counter[str] = Counter()
    kept: list[bytes] = []
    for pair in zip(lines.source, lines.target, strict=True):
        text, fate = _clean_pair(*pair)
        fates[fate] += 1
        if fate == KEPT:
            kept.append(text)
    hashes = (hashlib.blake2b(text, digest_size=8).digest() for text in kept)
    return b"".join(kept), b"".join(hashes), fates


def _clean_pair(source: bytes, target: bytes) -> tuple[bytes, str]:
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
