"""Aligned lines of text: reading, cleaning, and counting what is dropped and why."""

from __future__ import annotations

import bz2
import gzip
import itertools
import lzma
import zlib
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import IO, cast

from transformer.errors import InputError

_OPENERS = {".gz": gzip.open, ".xz": lzma.open, ".bz2": bz2.open}
_BYTE_ORDER_MARK = b"\xef\xbb\xbf"
# A file of which more is undecodable is in another encoding altogether.
_MOST_INVALID = 0.1

KEPT = "kept"
INVALID = "invalid UTF-8"
NUL = "NUL character"
EMPTY = "empty side"
DROPPED = (INVALID, NUL, EMPTY)


def read_lines(path: Path) -> Iterator[bytes]:
    """The lines of a text file, unpacked by its ending, without their ends.

    Lines end with LF or CRLF only: other line separators of Unicode stand inside lines.

    Raises:
        InputError: if the file is missing, cut short or damaged.
    """
    opener = _OPENERS.get(path.suffix, open)
    try:
        with cast(IO[bytes], opener(path, "rb")) as file:
            for number, line in enumerate(file):
                if number == 0:
                    line = line.removeprefix(_BYTE_ORDER_MARK)
                yield line.removesuffix(b"\n").removesuffix(b"\r")
    except (OSError, EOFError, lzma.LZMAError, zlib.error) as error:
        raise InputError(f"{path} cannot be read: {error}") from error


def normalise(line: str) -> str:
    """One plain space for every run of white space, Unicode's line separators included."""
    return " ".join(line.split())


def read_text(path: Path) -> list[str]:
    """All lines of a text that must be whole, such as a test set.

    Raises:
        InputError: naming the line that is not UTF-8.
    """
    return [decode_line(line, str(path), n) for n, line in enumerate(read_lines(path), 1)]


def decode_line(line: bytes, name: str, number: int) -> str:
    """A line of a text that must be whole.

    Raises:
        InputError: if it is not UTF-8.
    """
    try:
        return normalise(line.decode("utf-8"))
    except UnicodeDecodeError as error:
        raise InputError(f"{name}, line {number} is not UTF-8: {error.reason}") from error


def aligned_lines(source: Path, target: Path) -> Iterator[tuple[bytes, bytes]]:
    """The pairs of two files.

    Raises:
        InputError: at the end, if one has more lines; it names both and their counts.
    """
    source_lines, target_lines = read_lines(source), read_lines(target)
    for number, pair in enumerate(itertools.zip_longest(source_lines, target_lines)):
        if pair[0] is None or pair[1] is None:
            counts = [number + (line is not None) for line in pair]
            counts[0] += sum(1 for _ in source_lines)
            counts[1] += sum(1 for _ in target_lines)
            raise InputError(
                f"{source} has {counts[0]} lines but {target} has {counts[1]}: "
                "they must be aligned line by line"
            )
        yield pair


def clean_pairs(source: Path, target: Path, counts: Counter[str]) -> Iterator[tuple[str, str]]:
    """The usable pairs of a training text; ``counts`` gets each pair's fate.

    Raises:
        InputError: if the counts of lines differ, or more than a tenth is not UTF-8.
    """
    own: Counter[str] = Counter()
    for source_line, target_line in aligned_lines(source, target):
        pair, fate = _clean(source_line, target_line)
        own[fate] += 1
        if pair is not None:
            yield pair
    counts.update(own)
    if own[INVALID] > _MOST_INVALID * own.total():
        raise InputError(
            f"{source} or {target}: {own[INVALID]} of {own.total()} lines are not UTF-8; "
            "convert the file"
        )


def _clean(source: bytes, target: bytes) -> tuple[tuple[str, str] | None, str]:
    if b"\0" in source or b"\0" in target:
        return None, NUL
    try:
        pair = normalise(source.decode("utf-8")), normalise(target.decode("utf-8"))
    except UnicodeDecodeError:
        return None, INVALID
    return (pair, KEPT) if all(pair) else (None, EMPTY)
