"""Read text files, alone or aligned in pairs."""

from __future__ import annotations

import bz2
import gzip
import itertools
import lzma
import re
import zlib
from collections.abc import Iterator
from io import BufferedReader
from pathlib import Path
from typing import IO, BinaryIO, cast

from transformer.errors import InputError

_OPENERS = {".gz": gzip.open, ".xz": lzma.open, ".bz2": bz2.open}
# A download keeps the query of its address, as in train.en.gz?download=1.
_ENDING = re.compile(r"(\.gz|\.xz|\.bz2)(\?.*)?$")
_BYTE_ORDER_MARK = b"\xef\xbb\xbf"
# In bytes; no sentence is that long.
MAX_LINE = 2**16
# In bytes: the largest text that is held in memory, and what each line takes there besides itself.
MAX_TEXT, _MORE = 2**26, 64
# The most bytes that are read at a time, and kept of a line, with a mark before it and its end.
_PART = MAX_LINE + len(_BYTE_ORDER_MARK) + len(b"\r\n")


def read_text(path: Path) -> list[str]:
    """All lines of a text that must be complete, such as a test set.

    The file is decompressed by its suffix. Lines end with LF or CRLF only; Unicode's other line
    separators do not end a line.
    """
    lines, size = list[str](), 0
    with _open(path) as stored:
        for number, line in enumerate(_lines(stored, path), 1):
            lines.append(decode_line(line, str(path), number))
            size += len(line) + _MORE
            if size > MAX_TEXT:
                raise InputError(
                    f"{path} is too large to be held in memory from line {number:,} on: split it"
                )
    return lines


def _open(path: Path) -> BinaryIO:
    try:
        return path.open("rb")
    except OSError as error:
        raise InputError(f"{path} cannot be read: {error}") from error


def _lines(stored: BinaryIO, path: Path) -> Iterator[bytes]:
    packed = _ENDING.search(path.name)
    try:
        yield from lines_of(cast(IO[bytes], _OPENERS[packed[1]](stored)) if packed else stored)
    except (OSError, EOFError, lzma.LZMAError, zlib.error) as error:
        raise InputError(f"{path} cannot be read: {error}") from error


def lines_of(file: IO[bytes]) -> Iterator[bytes]:
    """The lines of an open file without their ends, and without a byte-order mark.

    A line of more than ``MAX_LINE`` bytes is cut, but stays longer than that, so that a caller can
    tell; the rest of it is skipped in constant memory.
    """
    return itertools.chain.from_iterable(arriving_lines(file))


def arriving_lines(file: IO[bytes]) -> Iterator[list[bytes]]:
    """The lines of :func:`lines_of`, in groups that can be read without waiting for more."""
    mark, rest = _BYTE_ORDER_MARK, b""
    while part := cast(BufferedReader, file).read1(_PART):
        *lines, rest = (rest + part).split(b"\n")
        rest = rest[:_PART]
        if lines:
            lines[0], mark = lines[0].removeprefix(mark), b""
            yield [line.removesuffix(b"\r") for line in lines]
    if rest := rest.removeprefix(mark):
        yield [rest.removesuffix(b"\r")]


def normalise(line: str) -> str:
    """The line with each run of white space, line separators included, as one space."""
    return " ".join(line.split())


def decode_line(line: bytes, name: str, number: int) -> str:
    """Decode a line of a text that must be complete."""
    if len(line) > MAX_LINE:
        raise InputError(f"{name}, line {number} has more than {MAX_LINE:,} bytes: split it")
    try:
        return normalise(line.decode("utf-8"))
    except UnicodeDecodeError as error:
        raise InputError(f"{name}, line {number} is not UTF-8: {error.reason}") from error


def stored_lines(path: Path, at_once: int) -> Iterator[list[bytes]]:
    """The lines of a file, decompressed by its suffix, ``at_once`` at a time."""
    with _open(path) as stored:
        lines = _lines(stored, path)
        while some := list(itertools.islice(lines, at_once)):
            yield some


def aligned_lines(
    source: Path, target: Path, at_once: int
) -> Iterator[tuple[list[bytes], list[bytes], int]]:
    """The lines of two files, ``at_once`` at a time, and the bytes read of the stored source."""
    with _open(source) as source_file, _open(target) as target_file:
        sides = _lines(source_file, source), _lines(target_file, target)
        counts = [0, 0]
        while True:
            ours, theirs = (list(itertools.islice(side, at_once)) for side in sides)
            counts = [counts[0] + len(ours), counts[1] + len(theirs)]
            if counts[0] != counts[1]:
                counts = [n + sum(1 for _ in side) for n, side in zip(counts, sides, strict=True)]
                raise _not_aligned(source, target, counts)
            if not ours:
                return
            yield ours, theirs, source_file.tell()


def read_aligned(source: Path, target: Path) -> tuple[list[str], list[str]]:
    """All lines of two texts that must be complete, such as a test set."""
    sides = read_text(source), read_text(target)
    if len(sides[0]) != len(sides[1]):
        raise _not_aligned(source, target, list(map(len, sides)))
    if not sides[0]:
        raise InputError(f"{source} and {target} are empty")
    return sides


def _not_aligned(source: Path, target: Path, counts: list[int]) -> InputError:
    return InputError(
        f"{source} has {counts[0]} lines but {target} has {counts[1]}: "
        "they must be aligned line by line"
    )
