"""Reading text files, and pairs of aligned ones."""

from __future__ import annotations

import bz2
import gzip
import itertools
import lzma
import zlib
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import IO, BinaryIO, cast

from transformer.errors import InputError

_OPENERS = {".gz": gzip.open, ".xz": lzma.open, ".bz2": bz2.open}
_BYTE_ORDER_MARK = b"\xef\xbb\xbf"
_AT_ONCE = 10_000
# In bytes. No sentence is as long; such lines would only take memory.
MAX_LINE = 2**16


def read_lines(path: Path) -> Iterator[bytes]:
    """The lines of a text file, decompressed by its suffix, without their line ends.

    Lines end with LF or CRLF only; Unicode's other line separators do not end a line. Of a line
    of more than ``MAX_LINE`` bytes comes its beginning, longer than that by a byte.
    """
    with _open(path) as stored:
        yield from _lines(stored, path)


def _open(path: Path) -> BinaryIO:
    try:
        return path.open("rb")
    except OSError as error:
        raise InputError(f"{path} cannot be read: {error}") from error


def _lines(stored: BinaryIO, path: Path) -> Iterator[bytes]:
    opener = _OPENERS.get(path.suffix)
    try:
        file = stored if opener is None else cast(IO[bytes], opener(stored, "rb"))
        yield from bounded_lines(file)
    except (OSError, EOFError, lzma.LZMAError, zlib.error) as error:
        raise InputError(f"{path} cannot be read: {error}") from error


def bounded_lines(file: IO[bytes]) -> Iterator[bytes]:
    """As :func:`read_lines`, of an open file: the rest of an overlong line is skipped unread."""
    most = MAX_LINE + len(_BYTE_ORDER_MARK) + len(b"\r\n")
    first = True
    while line := file.readline(most):
        end = line
        while len(end) == most and not end.endswith(b"\n"):
            end = file.readline(most)
        line = line.removeprefix(_BYTE_ORDER_MARK) if first else line
        first = False
        yield line.removesuffix(b"\n").removesuffix(b"\r")[: MAX_LINE + 1]


def normalise(line: str) -> str:
    """The line with each run of white space, line separators included, as one space."""
    return " ".join(line.split())


def read_text(path: Path) -> list[str]:
    """All lines of a text that must be complete, such as a test set."""
    return [decode_line(line, str(path), n) for n, line in enumerate(read_lines(path), 1)]


def decode_line(line: bytes, name: str, number: int) -> str:
    """Decode a line of a text that must be complete."""
    if len(line) > MAX_LINE:
        raise InputError(f"{name}, line {number} has more than {MAX_LINE:,} bytes: split it")
    try:
        return normalise(line.decode("utf-8"))
    except UnicodeDecodeError as error:
        raise InputError(f"{name}, line {number} is not UTF-8: {error.reason}") from error


@dataclass(frozen=True, slots=True)
class Lines:
    """Corresponding lines of two files, and the bytes of the source file read so far."""

    source: list[bytes]
    target: list[bytes]
    read: int


def aligned_lines(source: Path, target: Path, at_once: int) -> Iterator[Lines]:
    """The lines of two files, ``at_once`` of each at a time."""
    with _open(source) as source_file, _open(target) as target_file:
        sides = _lines(source_file, source), _lines(target_file, target)
        counts = [0, 0]
        while True:
            lines = [list(itertools.islice(side, at_once)) for side in sides]
            counts = [count + len(side) for count, side in zip(counts, lines, strict=True)]
            if counts[0] != counts[1]:
                counts = [n + sum(1 for _ in side) for n, side in zip(counts, sides, strict=True)]
                raise InputError(
                    f"{source} has {counts[0]} lines but {target} has {counts[1]}: "
                    "they must be aligned line by line"
                )
            if not lines[0]:
                return
            yield Lines(*lines, read=source_file.tell())


def read_aligned(source: Path, target: Path) -> tuple[list[str], list[str]]:
    """All lines of two texts that must be complete, such as a test set."""
    if sum(len(lines.source) for lines in aligned_lines(source, target, _AT_ONCE)) == 0:
        raise InputError(f"{source} and {target} are empty")
    return read_text(source), read_text(target)
