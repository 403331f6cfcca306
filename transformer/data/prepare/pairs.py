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
from transformer.data.columns import TORN
from transformer.data.prepared import TextReport, read_report, write_report
from transformer.data.store import Pair, write_store
from transformer.data.text import MAX_LINE, aligned_lines, normalise
from transformer.data.vocabulary import Vocabulary
from transformer.errors import InputError
from transformer.files import making
from transformer.progress import show_progress

# Pairs read or encoded at a time, which takes about a second.
CHUNK_PAIRS = 20_000
# A file with a larger share of undecodable lines is in another encoding altogether.
_MAX_INVALID = 0.1
_SAMPLE_SEED = 2017
_TEXT_FILE = "clean.txt"

KEPT = "kept"
COLUMNS = "wrong number of columns"
INVALID = "invalid UTF-8"
NUL = "NUL character"
EMPTY = "empty side"
OVERLONG = "overlong line"
DUPLICATE = "duplicate"
TOO_LONG = "too long"
UNEQUAL = "lengths too unequal"

# The setting by which pairs are dropped, where there is one.
FILTERS = {DUPLICATE: "drop_duplicates", TOO_LONG: "max_length", UNEQUAL: "max_length_ratio"}

# The name of a training text, and the files of its sides.
LocalText = tuple[str, Path, Path]


@dataclass(frozen=True, slots=True)
class CleanText:
    """A file of the usable pairs, alternately a source and a target line; a report on each text."""

    path: Path
    reports: list[TextReport]

    @property
    def pairs(self) -> int:
        """The number of pairs."""
        return sum(report.kept for report in self.reports)

    def chunks(self) -> Iterator[tuple[int, list[str]]]:
        """The number of the training text, and both lines of some pairs of it, in order."""
        lines = self._lines()
        for number, report in enumerate(self.reports):
            own = itertools.islice(lines, 2 * report.kept)
            while chunk := list(itertools.islice(own, 2 * CHUNK_PAIRS)):
                yield number, chunk

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
            reports = _write(texts, part / _TEXT_FILE, drop_duplicates)
            _check(texts, reports)
            write_report(part, reports)
    return CleanText(directory / _TEXT_FILE, read_report(directory))


def _write(texts: Sequence[LocalText], path: Path, drop_duplicates: bool) -> list[TextReport]:
    fates = [Counter[str]() for _ in texts]
    sizes = [source.stat().st_size for _, source, _ in texts]
    # Hashes of 64 bits: among 36 million pairs two different ones are equal with probability 4e-5.
    seen: set[bytes] = set()
    with path.open("wb") as out, show_progress("cleaning", max(1, sum(sizes))) as update:
        for number, (_, source, target) in enumerate(texts):
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
    return [_report(name, found) for (name, _, _), found in zip(texts, fates, strict=True)]


def _report(text: str, fates: Counter[str]) -> TextReport:
    dropped = {fate: pairs for fate, pairs in sorted(fates.items()) if fate != KEPT}
    lines, kept = fates.total(), fates[KEPT]
    return TextReport(split="train", text=text, lines=lines, kept=kept, dropped=dropped)


def clean_pair(source: bytes, target: bytes) -> tuple[bytes, str]:
    """Both lines with single spaces, and ``KEPT``, or nothing and why the pair is dropped."""
    if TORN in (source, target):
        return b"", COLUMNS
    if b"\0" in source or b"\0" in target:
        return b"", NUL
    if len(source) > MAX_LINE or len(target) > MAX_LINE:
        return b"", OVERLONG
    try:
        pair = normalise(source.decode("utf-8")), normalise(target.decode("utf-8"))
    except UnicodeDecodeError:
        return b"", INVALID
    return (f"{pair[0]}\n{pair[1]}\n".encode(), KEPT) if all(pair) else (b"", EMPTY)


def _check(texts: Sequence[LocalText], reports: Sequence[TextReport]) -> None:
    for (_, source, target), report in zip(texts, reports, strict=True):
        invalid = report.dropped.get(INVALID, 0)
        if invalid > _MAX_INVALID * report.lines:
            raise InputError(
                f"{source} or {target}: {invalid} of {report.lines} lines are not UTF-8; "
                "convert the file"
            )
    if not any(report.kept for report in reports):
        _, source, target = texts[0]
        raise InputError(f"{source} and {target} hold no usable pair: they are empty, or UTF-16")


def encode(
    text: CleanText, vocabulary: Vocabulary, limits: DataConfig, directory: Path
) -> list[TextReport]:
    """Write the store of ``text`` into a new ``directory``, and report on each training text."""
    fates = [Counter(report.dropped) for report in text.reports]

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
    return [_report(each.text, found) for each, found in zip(text.reports, fates, strict=True)]


def _fate(pair: Pair, limits: DataConfig) -> str:
    shorter, longer = sorted(map(len, pair))
    if longer > limits.max_length:
        return TOO_LONG
    ratio = limits.max_length_ratio
    return UNEQUAL if ratio is not None and longer > ratio * shorter else KEPT
