"""Text files as in real corpora, damaged ones included, and the joint vocabulary."""

from __future__ import annotations

import bz2
import gzip
import io
import lzma
import re
import tracemalloc
from pathlib import Path

import pytest

from tests.samples import number_pairs
from transformer.config import BOS_ID, EOS_ID, PAD_ID, UNK_ID
from transformer.data import text as text_module
from transformer.data.text import MAX_LINE, aligned_lines, arriving_lines, lines_of, read_text
from transformer.data.vocabulary import Vocabulary, train_vocabulary
from transformer.errors import InputError

PACKERS = {".gz": gzip.compress, ".xz": lzma.compress, ".bz2": bz2.compress}
PACKERS[".gz?download=1"] = gzip.compress


def write(path: Path, content: bytes) -> Path:
    path.write_bytes(content)
    return path


@pytest.mark.parametrize(
    ("content", "lines"),
    [
        (b"one\ntwo\n", ["one", "two"]),
        (b"one\r\ntwo", ["one", "two"]),
        (b"one\n\ntwo\n", ["one", "", "two"]),
        (b"", []),
        # A byte-order mark is removed at the start only.
        (b"\xef\xbb\xbfone\n\xef\xbb\xbftwo\n", ["one", "\ufefftwo"]),
        ("one\u2028more\ntwo\u0085more\n".encode(), ["one more", "two more"]),
        (b"one\x0bmore\x0cmore\x1cmore\rmore\n", ["one more more more more"]),
        ("\u00a0one \u3000\t\t two\u2029x\u2009\n".encode(), ["one two x"]),
    ],
)
def test_lines_end_with_lf_or_crlf_only(content: bytes, lines: list[str], tmp_path: Path) -> None:
    assert read_text(write(tmp_path / "text", content)) == lines


@pytest.mark.parametrize("ending", PACKERS)
def test_files_are_decompressed_and_damaged_ones_named(ending: str, tmp_path: Path) -> None:
    path, pack = tmp_path / f"text.en{ending}", PACKERS[ending]
    assert read_text(write(path, pack("eins\nzwölf\n".encode()))) == ["eins", "zwölf"]
    packed = pack(b"12 34 56\n" * 4_001)
    altered = packed[:-20] + bytes(12) + packed[-8:]
    for content in (packed[: len(packed) // 2], altered, b"plain text\n" * 7):
        with pytest.raises(InputError, match=f"{re.escape(str(path))} cannot be read"):
            read_text(write(path, content))


@pytest.mark.parametrize(
    ("last", "problem"),
    [(b"f\xfcnf", "is not UTF-8"), (b"a" * (MAX_LINE + 1), "has more than 65,536 bytes: split it")],
)
def test_a_line_that_cannot_be_used_is_named(last: bytes, problem: str, tmp_path: Path) -> None:
    with pytest.raises(InputError, match=f"{tmp_path}/none cannot be read"):
        read_text(tmp_path / "none")
    path = write(tmp_path / "valid.de", b"a fine line\n" * 19 + last)
    with pytest.raises(InputError, match=f"{path}, line 20 {problem}"):
        read_text(path)


def test_a_line_without_end_takes_no_memory_and_the_next_ones_follow() -> None:
    endless = io.BytesIO(bytes(10_000_000) + b"\r\nnext\n")
    tracemalloc.start()
    lines = [line[: MAX_LINE + 1] for line in lines_of(endless)]
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert lines == [bytes(MAX_LINE + 1), b"next"] and peak < 10 * MAX_LINE


@pytest.mark.parametrize("at_a_time", [1, 2, 3, 100])
def test_lines_are_the_same_however_they_arrive(at_a_time: int) -> None:
    class Slow(io.BytesIO):
        def read1(self, size: int | None = -1, /) -> bytes:
            return super().read1(at_a_time)

    text = b"\xef\xbb\xbfone\r\n\n \xef\xbb\xbftwo\rthree\nfour"
    lines = [b"one", b"", b" \xef\xbb\xbftwo\rthree", b"four"]
    assert list(lines_of(Slow(text))) == lines
    assert list(lines_of(Slow(text + b"\r\n"))) == lines
    assert list(lines_of(Slow(text[:3]))) == list(lines_of(Slow(b""))) == []
    together = [lines[:3], lines[3:]] if at_a_time == 100 else [[line] for line in lines]
    assert at_a_time == 3 or list(arriving_lines(Slow(text))) == together


@pytest.mark.parametrize(("line", "first"), [(b"", 65), (b"x" * 960, 5)])
def test_a_text_that_memory_should_not_hold_is_refused(
    line: bytes, first: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(text_module, "MAX_TEXT", 4_096)
    lines = [line + b"\n"] * first
    path = write(tmp_path / "valid.en.gz", gzip.compress(b"".join(lines[1:])))
    assert len(read_text(path)) == first - 1
    write(path, gzip.compress(b"".join(lines * 9)))
    with pytest.raises(InputError, match=rf"gz is too large to be held .* line {first} on: split"):
        read_text(path)


@pytest.mark.parametrize(("source", "target"), [(7, 5), (0, 3), (3, 0), (5, 6)])
def test_unequal_numbers_of_lines_name_both_files(source: int, target: int, tmp_path: Path) -> None:
    one, other = write(tmp_path / "en", b"x\n" * source), write(tmp_path / "de", b"y\n" * target)
    with pytest.raises(InputError, match=f"{one} has {source} lines but {other} has {target}"):
        list(aligned_lines(one, other, 3))


LINES = [line for pair in number_pairs(101, seed=5) for line in pair]
# What would be changed by Unicode's NFKC, which sentencepiece applies unless it is told not to.
ODD = [
    "ﬁne ½ Å \uff21\uff22\uff23 e\u0301 and é",
    "“quotes” … \u2013 — ß ẞ a\u00adb",
    "日本語 한국어 العربية 👩\u200d👩\u200d👧 🏳️",
]


def train(path: Path, size: int, lines: list[str] = LINES) -> Vocabulary:
    train_vocabulary(lines, size, path)
    return Vocabulary(path)


def test_decoding_inverts_encoding_and_drops_control_ids(tmp_path: Path) -> None:
    vocabulary = train(tmp_path / "v.model", 101, LINES + ODD)
    for lines in (LINES, ODD):
        assert list(map(vocabulary.decode, vocabulary.encode(lines))) == lines
    (ids,) = vocabulary.encode(["one two"])
    assert vocabulary.decode([BOS_ID, *ids, PAD_ID, PAD_ID]) == "one two"
    for name in ("<pad>", "<s>", "</s>"):
        (ids,) = vocabulary.encode([f"one {name} two"])
        assert not {PAD_ID, BOS_ID, EOS_ID} & set(ids[:-1])


def test_every_character_of_a_line_of_any_length_is_learned(tmp_path: Path) -> None:
    assert UNK_ID in train(tmp_path / "v.model", 61).encode(["one ζ two"])[0]
    vocabulary = train(tmp_path / "v.model", 61, [*LINES, "one " * 2_003 + "ζ"])
    assert UNK_ID not in vocabulary.encode(["one ζ two"])[0]


@pytest.mark.parametrize("word", ["<unk>", "a<s>", "</s>z", "<pad><pad>", "<mask>", "\ufffd"])
def test_words_that_name_word_pieces_of_sentencepiece_come_back(word: str, tmp_path: Path) -> None:
    lines = [*LINES, f"one {word} two"]
    vocabulary = train(tmp_path / "v.model", 51, lines)
    assert list(map(vocabulary.decode, vocabulary.encode(lines))) == lines


@pytest.mark.parametrize(
    ("words", "count", "found"),
    [("\u2581 a\u2581b", 3, r"U\+2581"), ("\u2585", 2, r"U\+2585"), ("a\0b", 2, r"U\+0000")],
)
def test_words_that_cannot_come_back_are_counted(
    words: str, count: int, found: str, tmp_path: Path
) -> None:
    lines = [*LINES, f"one {words} two", f"{words.split()[-1]} ab"]
    with pytest.warns(
        UserWarning, match=rf"^{count} words hold .* stand for \({found}\): decoding"
    ):
        train(tmp_path / "v.model", 41, lines)


@pytest.mark.parametrize(("size", "beyond"), [(4_001, 1), (11, -1)])
def test_a_size_is_refused_with_the_limit(size: int, beyond: int, tmp_path: Path) -> None:
    def limit_named(size: int) -> int:
        with pytest.raises(InputError, match=f"vocab_size {size} is ") as refusal:
            train(tmp_path / "v.model", size)
        return int(re.findall(r"\d+", str(refusal.value))[-1])

    limit = limit_named(size)
    assert len(train(tmp_path / "v.model", limit)) == limit
    assert limit_named(limit + beyond) == limit


def test_an_invalid_vocabulary_file_is_named(tmp_path: Path) -> None:
    for path in (tmp_path / "none", write(tmp_path / "v.model", b"not a model")):
        with pytest.raises(InputError, match=f"{path} is not a vocabulary"):
            Vocabulary(path)
