"""The joint vocabulary."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests.samples import number_pairs
from transformer.config import BOS_ID, EOS_ID, PAD_ID, UNK_ID
from transformer.data.vocabulary import Vocabulary, train_vocabulary
from transformer.errors import InputError

LINES = [line for pair in number_pairs(101, seed=5) for line in pair]
# What would be changed by Unicode's NFKC, which sentencepiece applies unless it is told not to.
ODD = [
    "ﬁne ½ Å \uff21\uff22\uff23",
    "e\u0301 and é",
    "“quotes” … \u2013 — ß ẞ",
    "日本語 한국어 العربية",
    "👩\u200d👩\u200d👧 🏳️",
    "a\u00adb",
]


def train(path: Path, size: int, lines: list[str] = LINES) -> Vocabulary:
    train_vocabulary(lines, size, path)
    return Vocabulary(path)


def test_the_same_text_gives_the_same_bytes(tmp_path: Path) -> None:
    for name in ("one.model", "two.model"):  # nor does the file name matter
        train(tmp_path / name, 61)
    assert (tmp_path / "one.model").read_bytes() == (tmp_path / "two.model").read_bytes()


def test_decoding_inverts_encoding(tmp_path: Path) -> None:
    vocabulary = train(tmp_path / "v.model", 101, LINES + ODD)
    for lines in (LINES, ODD):
        assert vocabulary.decode(vocabulary.encode(lines)) == lines


def test_control_ids_are_dropped_in_decoding_and_never_in_text(tmp_path: Path) -> None:
    vocabulary = train(tmp_path / "v.model", 61)
    (ids,) = vocabulary.encode(["one two"])
    assert vocabulary.decode([[BOS_ID, *ids, PAD_ID, PAD_ID]]) == ["one two"]
    for name in ("<pad>", "<s>", "</s>"):
        (ids,) = vocabulary.encode([f"one {name} two"])
        assert not {PAD_ID, BOS_ID, EOS_ID} & set(ids[:-1])


def test_every_character_of_a_line_of_any_length_is_learned(tmp_path: Path) -> None:
    assert UNK_ID in train(tmp_path / "v.model", 61).encode(["one ζ two"])[0]
    vocabulary = train(tmp_path / "v.model", 61, [*LINES, "one " * 2_003 + "ζ"])
    assert UNK_ID not in vocabulary.encode(["one ζ two"])[0]


def limit_named(size: int, path: Path) -> int:
    with pytest.raises(InputError, match=f"vocab_size {size} is ") as refusal:
        train(path, size)
    return int(re.findall(r"\d+", str(refusal.value))[-1])


@pytest.mark.parametrize(("size", "beyond"), [(4_001, 1), (11, -1)])
def test_a_size_is_refused_with_the_largest_or_smallest_possible(
    size: int, beyond: int, tmp_path: Path
) -> None:
    limit = limit_named(size, tmp_path / "v.model")
    assert len(train(tmp_path / "v.model", limit)) == limit
    assert limit_named(limit + beyond, tmp_path / "v.model") == limit


@pytest.mark.parametrize("content", [b"", b"not a model", None])
def test_an_invalid_vocabulary_file_is_named(content: bytes | None, tmp_path: Path) -> None:
    path = tmp_path / "v.model"
    if content is not None:
        path.write_bytes(content)
    with pytest.raises(InputError, match=f"{path} is not a vocabulary"):
        Vocabulary(path)
