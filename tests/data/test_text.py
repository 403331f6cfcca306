"""Text files as in real corpora, damaged ones included."""

from __future__ import annotations

import bz2
import gzip
import lzma
import tracemalloc
from collections.abc import Callable
from pathlib import Path

import pytest

from transformer.data.text import (
    MAX_LINE,
    aligned_lines,
    read_lines,
    read_text,
)
from transformer.errors import InputError

PACKERS: dict[str, Callable[[bytes], bytes]] = {
    ".gz": gzip.compress,
    ".xz": lzma.compress,
    ".bz2": bz2.compress,
}


def write(path: Path, content: bytes) -> Path:
    path.write_bytes(content)
    return path


@pytest.mark.parametrize(
    ("content", "lines"),
    [
        (b"one\ntwo\n", ["one", "two"]),
        (b"one\ntwo", ["one", "two"]),
        (b"one\r\ntwo\r\n", ["one", "two"]),
        (b"one\n\ntwo\n", ["one", "", "two"]),
        (b"", []),
        # A byte-order mark is removed at the start only.
        (b"\xef\xbb\xbfone\n\xef\xbb\xbftwo\n", ["one", "\ufefftwo"]),
        ("one\u2028more\ntwo\u0085more\n".encode(), ["one more", "two more"]),
        (b"one\x0bmore\x0cmore\x1cmore\n", ["one more more more"]),
        (b"one\rmore\n", ["one more"]),
        ("\u00a0one \u3000\t\t two\u2029x\u2009\n".encode(), ["one two x"]),
    ],
)
def test_lines_end_with_lf_or_crlf_only(content: bytes, lines: list[str], tmp_path: Path) -> None:
    assert read_text(write(tmp_path / "text", content)) == lines


@pytest.mark.parametrize("ending", PACKERS)
def test_files_are_decompressed_by_suffix(ending: str, tmp_path: Path) -> None:
    path = write(tmp_path / f"text.en{ending}", PACKERS[ending]("eins\nzwölf\n".encode()))
    assert read_text(path) == ["eins", "zwölf"]


@pytest.mark.parametrize("ending", PACKERS)
@pytest.mark.parametrize("damage", ["cut short", "altered", "not packed"])
def test_a_damaged_compressed_file_is_named(ending: str, damage: str, tmp_path: Path) -> None:
    content = PACKERS[ending](bytes(range(256)) * 41)
    broken = {
        "cut short": content[: len(content) // 2],
        "altered": content[:-20] + bytes(12) + content[-8:],
        "not packed": b"plain text\n" * 7,
    }
    path = write(tmp_path / f"text.en{ending}", broken[damage])
    with pytest.raises(InputError, match=f"{path} cannot be read"):
        list(read_lines(path))


def test_a_missing_file_and_an_undecodable_line_are_named(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=f"{tmp_path}/none cannot be read"):
        list(read_lines(tmp_path / "none"))
    path = write(tmp_path / "valid.de", b"a fine line\n" * 19 + b"f\xfcnf\n")
    with pytest.raises(InputError, match=f"{path}, line 20 is not UTF-8"):
        read_text(path)


@pytest.mark.parametrize(("source", "target"), [(7, 5), (5, 7), (0, 3), (3, 0), (5, 6)])
def test_different_numbers_of_lines_name_both_files(
    source: int, target: int, tmp_path: Path
) -> None:
    one, other = (
        write(tmp_path / "a.en", b"x\n" * source),
        write(tmp_path / "a.de", b"y\n" * target),
    )
    with pytest.raises(InputError, match=f"{one} has {source} lines but {other} has {target}"):
        list(aligned_lines(one, other, 3))


@pytest.mark.parametrize("ending", [b"\n", b"\r\n"])
def test_of_an_overlong_line_comes_the_beginning(ending: bytes, tmp_path: Path) -> None:
    longest, longer = b"a" * MAX_LINE, b"b" * (MAX_LINE + 1)
    path = tmp_path / "text"
    for start in (b"", b"\xef\xbb\xbf"):
        path.write_bytes(start + ending.join([longest, longer, 3 * longer, b"end", longer]))
        assert list(read_lines(path)) == [longest, longer, longer, b"end", longer]
    with pytest.raises(InputError, match=r"text, line 2 has more than 65,536 bytes: split it"):
        read_text(path)


def test_a_line_without_end_takes_no_memory(tmp_path: Path) -> None:
    path = tmp_path / "text.gz"
    with gzip.open(path, "wb", compresslevel=1) as file:
        for _ in range(50):
            file.write(b"a" * 2**20)
    tracemalloc.start()
    (line,) = read_lines(path)
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert len(line) == MAX_LINE + 1 and peak < 2**20
