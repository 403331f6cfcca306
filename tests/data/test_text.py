"""Bad text that real corpora hold."""

from __future__ import annotations

import bz2
import gzip
import lzma
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from transformer.data.text import (
    DROPPED,
    EMPTY,
    INVALID,
    KEPT,
    NUL,
    aligned_lines,
    clean_pairs,
    normalise,
    read_lines,
    read_text,
)
from transformer.errors import InputError

GOOD = b"a fine line\n" * 19
PACKERS: dict[str, Callable[[bytes], bytes]] = {
    ".gz": gzip.compress,
    ".xz": lzma.compress,
    ".bz2": bz2.compress,
}


def write(path: Path, content: bytes) -> Path:
    path.write_bytes(content)
    return path


def clean(folder: Path, source: bytes, target: bytes) -> tuple[list[tuple[str, str]], Counter[str]]:
    counts: Counter[str] = Counter()
    paths = write(folder / "text.en", source), write(folder / "text.de", target)
    return list(clean_pairs(*paths, counts)), counts


@pytest.mark.parametrize(
    ("content", "lines"),
    [
        (b"one\ntwo\n", ["one", "two"]),
        (b"one\ntwo", ["one", "two"]),
        (b"one\r\ntwo\r\n", ["one", "two"]),
        (b"one\n\ntwo\n", ["one", "", "two"]),
        (b"", []),
        (b"\xef\xbb\xbfone\ntwo\n", ["one", "two"]),
        ("one\u2028more\ntwo\u0085more\n".encode(), ["one more", "two more"]),
        (b"one\x0bmore\x0cmore\x1cmore\n", ["one more more more"]),
        (b"one\rmore\n", ["one more"]),
        ("\u00a0one \u3000\t two\u2009\n".encode(), ["one two"]),
    ],
)
def test_lines_end_with_lf_or_crlf_only(content: bytes, lines: list[str], tmp_path: Path) -> None:
    assert read_text(write(tmp_path / "text", content)) == lines


def test_a_byte_order_mark_is_one_at_the_very_start_only(tmp_path: Path) -> None:
    mark = b"\xef\xbb\xbf"
    lines = list(read_lines(write(tmp_path / "text", mark + b"one\n" + mark + b"two\n")))
    assert lines == [b"one", mark + b"two"]


def test_any_white_space_becomes_one_space() -> None:
    assert normalise(" a\t\tb\u2029c\u00a0 d\n") == "a b c d"


@pytest.mark.parametrize("ending", PACKERS)
def test_packed_files_are_unpacked_by_their_ending(ending: str, tmp_path: Path) -> None:
    path = write(tmp_path / f"text.en{ending}", PACKERS[ending]("eins\nzwölf\n".encode()))
    assert read_text(path) == ["eins", "zwölf"]


@pytest.mark.parametrize("ending", PACKERS)
@pytest.mark.parametrize("damage", ["cut short", "altered", "not packed"])
def test_a_damaged_packed_file_is_named(ending: str, damage: str, tmp_path: Path) -> None:
    content = PACKERS[ending](bytes(range(256)) * 41)
    broken = {
        "cut short": content[: len(content) // 2],
        "altered": content[:-20] + bytes(12) + content[-8:],
        "not packed": b"plain text\n" * 7,
    }
    path = write(tmp_path / f"text.en{ending}", broken[damage])
    with pytest.raises(InputError, match=f"{path} cannot be read"):
        list(read_lines(path))


def test_a_missing_file_is_named(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=f"{tmp_path}/none cannot be read"):
        list(read_lines(tmp_path / "none"))


@pytest.mark.parametrize(
    ("source", "target", "fate"),
    [
        (b"one", b"eins", KEPT),
        (b"", b"eins", EMPTY),
        (b"one", b" \t ", EMPTY),
        ("\u2028".encode(), b"eins", EMPTY),
        (b"one\0", b"eins", NUL),
        (b"one", b"\0", NUL),
        (b"f\xfcnf", b"eins", INVALID),
        (b"one", b"f\xfcnf", INVALID),
        (b"one", b"\xed\xa0\x80", INVALID),  # half a surrogate pair
    ],
)
def test_the_fate_of_a_pair(source: bytes, target: bytes, fate: str, tmp_path: Path) -> None:
    pairs, counts = clean(tmp_path, GOOD + source + b"\n", GOOD + target + b"\n")
    assert counts == Counter({KEPT: 19}) + Counter({fate: 1})
    assert len(pairs) == counts[KEPT]


def test_pairs_stay_pairs_where_some_are_dropped(tmp_path: Path) -> None:
    source, target = b"1\n\n3\n4\n5\n6", b"eins\nzwei\ndrei\n\0\nf\xc3\xbcnf\nsechs"
    pairs, _ = clean(tmp_path, source, target)
    assert pairs == [("1", "eins"), ("3", "drei"), ("5", "fünf"), ("6", "sechs")]


some_line = st.sampled_from([b"good", b"", b"\0", b" ", b"a b", "ü\u2028".encode()])


@settings(max_examples=50, deadline=None)
@given(st.lists(st.tuples(some_line, some_line), min_size=1))
def test_lines_read_are_pairs_kept_and_pairs_dropped(
    tmp_path_factory: pytest.TempPathFactory, lines: list[tuple[bytes, bytes]]
) -> None:
    sides = [b"".join(line + b"\n" for line in side) for side in zip(*lines, strict=True)]
    pairs, counts = clean(tmp_path_factory.mktemp("text"), sides[0], sides[1])
    assert counts.total() == len(lines)
    assert set(counts) <= {KEPT, *DROPPED}
    assert len(pairs) == counts[KEPT]


def test_counts_of_several_texts_add_up(tmp_path: Path) -> None:
    one = write(tmp_path / "one", GOOD)
    other = write(tmp_path / "other", b"\n" + GOOD[12:])
    counts: Counter[str] = Counter()
    for target in (one, other):
        list(clean_pairs(one, target, counts))
    assert counts == {KEPT: 37, EMPTY: 1}


def test_up_to_a_tenth_may_be_undecodable(tmp_path: Path) -> None:
    _, counts = clean(tmp_path, GOOD[12:] + b"\xfc\n\xfc\n", GOOD + b"ja\n")
    assert counts == {KEPT: 18, INVALID: 2}
    with pytest.raises(InputError, match=r"text\.en .*text\.de: 3 of 20 lines are not UTF-8"):
        clean(tmp_path, GOOD[24:] + b"\xfc\n" * 3, GOOD + b"ja\n")


def test_an_undecodable_line_of_a_text_that_must_be_whole_is_named(tmp_path: Path) -> None:
    path = write(tmp_path / "valid.de", GOOD + b"f\xfcnf\n")
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
        list(aligned_lines(one, other))
