"""Parallel text in two columns of one file."""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path

from transformer.data.text import decode_line, stored_lines
from transformer.errors import InputError

# Stands for a line with more or fewer columns than the first; no text has its NUL.
TORN = b"\0\t"
_CODE = re.compile(r"[a-z]{2,3}([-_]\w+)?")
_ROLES = (("source", "target"), ("src", "tgt"))
_LINES_AT_ONCE = 20_000


def find_columns(
    path: Path, languages: tuple[str, str] | None
) -> tuple[tuple[str, str], tuple[str, str]]:
    """The languages of a table, source first, and its columns that hold them.

    Its first line may name the columns: two codes of languages and nothing else or, with
    ``languages`` given, also among other columns, these two codes, ``source`` and ``target``, or
    ``src`` and ``tgt``. Without names the columns are ``1``, the source, and ``2``; then
    ``languages`` must be given.

    Raises:
        InputError: if the first line has no tab, or other languages, or nothing names them
    """
    header = _header(path)
    if len(header) < 2:
        raise InputError(f"{path}, line 1 has no tab: it must be between source and target")
    if languages is None and _are_codes(header):
        return (header[0], header[1]), (header[0], header[1])
    if languages is None:
        raise InputError(
            f"{path} names no languages: put a line such as en, tab, de before the others, or name "
            "them, as in files:FOLDER:en-de"
        )
    for names in (languages, *_ROLES):
        if set(names) <= set(header):
            return languages, names
    if _are_codes(header) and not set(languages).isdisjoint(header):
        found, wanted = " and ".join(header), " and ".join(languages)
        raise InputError(f"{path} has the columns {found}, not {wanted}")
    return languages, ("1", "2")


def _header(path: Path) -> list[str]:
    for lines in stored_lines(path, 1):
        try:
            return [name.strip() for name in lines[0].decode().split("\t")]
        except UnicodeDecodeError as error:
            raise InputError(f"{path}, line 1 is not UTF-8: convert the file") from error
    raise InputError(f"{path} is empty")


def _are_codes(header: Sequence[str]) -> bool:
    if len(header) != 2 or header[0] == header[1] or tuple(header) in _ROLES:
        return False
    return all(map(_CODE.fullmatch, header))


def write_column(path: Path, column: str, into: Path) -> None:
    """Write the lines of one column of a table, without its name, to the file ``into``.

    A line with another number of columns than the first becomes :data:`TORN`, an empty one is kept.
    """
    header = _header(path)
    numbers = [str(number) for number in range(1, len(header) + 1)]
    if column not in (*header, *numbers):
        raise InputError(f"{path} has no column {column}: its first line has {', '.join(header)}")
    is_number = column in numbers
    place = numbers.index(column) if is_number else header.index(column)
    skipped = 0 if is_number else 1
    with into.open("wb") as out:
        for lines in stored_lines(path, _LINES_AT_ONCE):
            for line in lines[skipped:]:
                fields = line.split(b"\t")
                text = b""
                if len(fields) == len(header):
                    text = fields[place].strip()
                elif line.strip():
                    text = TORN
                out.write(text + b"\n")
            skipped = 0


def check_columns(path: Path) -> None:
    """Check that each line of a table that is scored has its columns, in UTF-8.

    Raises:
        InputError: with the number of the line
    """
    width, number = len(_header(path)), 0
    for lines in stored_lines(path, _LINES_AT_ONCE):
        for line in lines:
            number += 1
            fields = line.split(b"\t")
            if len(fields) != width:
                raise InputError(
                    f"{path}, line {number} has {len(fields)} columns, but line 1 has {width}: a "
                    "text that is scored may not contain a tab"
                )
            for field in fields:
                decode_line(field, str(path), number)
