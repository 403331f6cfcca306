"""Training pairs: cleaned, encoded, kept or dropped for a reason."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.samples import number_pairs, write_pairs
from transformer.config import DataConfig
from transformer.data.corpora.declared import CLDR_EN_DE
from transformer.data.prepare.clean import (
    EMPTY,
    INVALID,
    KEPT,
    NUL,
    OVERLONG,
    CleanText,
    clean,
    clean_lines,
)
from transformer.data.prepare.encode import (
    DUPLICATE,
    TOO_LONG,
    UNEQUAL,
    WordByWord,
    encode,
    find_duplicates,
)
from transformer.data.store import TokenStore
from transformer.data.text import Lines, normalise
from transformer.data.vocabulary import Vocabulary, train_vocabulary
from transformer.errors import InputError

Pairs = list[tuple[bytes, bytes]]


def fates_of(pairs: Pairs) -> tuple[bytes, Counter[str]]:
    source, target = map(list, zip(*pairs, strict=True))
    text, hashes, fates = clean_lines(Lines(source, target, 0))
    assert len(hashes) == 8 * fates[KEPT]
    return text, fates


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
        (b"one " * 20_000, b"eins", OVERLONG),
        (b"one", b"eins " * 20_000, OVERLONG),
        (b"one " * 10_000, b"eins", KEPT),
    ],
)
def test_the_fate_of_a_pair(source: bytes, target: bytes, fate: str) -> None:
    assert fates_of([(source, target)])[1] == {fate: 1}


def write_texts(folder: Path, *counts: int) -> list[tuple[Path, Path]]:
    folder.mkdir()
    for number, count in enumerate(counts):
        write_pairs(folder, f"text{number}", number_pairs(count, seed=number))
    return [(folder / f"text{n}.en", folder / f"text{n}.de") for n in range(len(counts))]


def cleaned(folder: Path, texts: list[tuple[Path, Path]]) -> CleanText:
    return clean(texts, folder, workers=1)


def test_up_to_a_tenth_of_each_text_may_be_undecodable(tmp_path: Path) -> None:
    (source, target), _ = texts = write_texts(tmp_path / "texts", 19, 97)
    source.write_bytes(b"\xfc\n" + source.read_bytes().partition(b"\n")[2])
    assert cleaned(tmp_path / "one", texts).pairs == 115
    target.write_bytes(b"ja\n\xfc\n" + b"ja\n" * 17)
    message = r"text0\.en or .*text0\.de: 2 of 19 lines are not UTF-8; convert the file"
    with pytest.raises(InputError, match=message):
        cleaned(tmp_path / "two", texts)


def test_a_sample_is_spread_over_the_text_and_deterministic(tmp_path: Path) -> None:
    text = cleaned(tmp_path / "work", write_texts(tmp_path / "texts", 101))
    pairs = [f"{s}\n{t}" for s, t in number_pairs(101, 0)]
    for most in (1, 7, 100):
        lines = list(text.sample(most))
        assert lines == list(text.sample(most))
        drawn = ["\n".join(lines[i : i + 2]) for i in range(0, len(lines), 2)]
        assert len(drawn) == most
        bounds = np.arange(most + 1) * 101 // most
        for pair, low, high in zip(drawn, bounds, bounds[1:], strict=False):
            assert pair in pairs[low:high]
    assert list(text.sample(101)) == list(text.sample(1_009)) == "\n".join(pairs).split("\n")


def test_all_but_the_first_of_equal_pairs_are_duplicates(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("transformer.data.prepare.encode._COMPARED_PAIRS", 13)
    monkeypatch.setattr("transformer.data.prepare.encode._READ_PAIRS", 17)
    folder = tmp_path / "texts"
    folder.mkdir()
    pairs = [*number_pairs(83, 0, longest=2), ("one", "null"), *number_pairs(83, 0, longest=2)]
    write_pairs(folder, "text", pairs)
    text = cleaned(tmp_path / "work", [(folder / "text.en", folder / "text.de")])
    seen: set[tuple[str, str]] = set()
    expected = [pair in seen or bool(seen.add(pair)) for pair in pairs]
    assert find_duplicates(text.hashes).tolist() == expected
    assert 83 < sum(expected) < 167


LINES = [line for pair in number_pairs(101, seed=5) for line in pair]
# What sentencepiece sets for a space; marks that join; characters that no vocabulary has.
ODD = "a\u2581b\u2581\u2581c\u0301ß日👩\u200d👧 \u00ad\ufeff\x7f"


@pytest.fixture(scope="module")
def vocabulary(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("vocabulary") / "v.model"
    train_vocabulary([*LINES, "a ab abc \u2581a b\u2581"], 89, path)
    return path


@settings(max_examples=80)
@given(st.lists(st.one_of(st.sampled_from(LINES), st.text(max_size=7), st.text(ODD, max_size=7))))
def test_encoding_by_words_equals_encoding_the_line(vocabulary: Path, parts: list[str]) -> None:
    line = normalise(" ".join(parts).replace("\0", "").encode(errors="ignore").decode())
    whole = Vocabulary(vocabulary)
    (expected,) = whole.encode([line])
    encoder = WordByWord(whole)
    for _ in range(2):  # computed, then cached
        assert np.frombuffer(encoder.encode(line), np.uint16).tolist() == expected


def test_dropped_pairs_have_a_reason(tmp_path: Path, vocabulary: Path) -> None:
    five = "one one one one one"
    pairs = [("one", "eins"), (five, "eins"), ("one", "eins"), (f"{five} {five}", five)]
    write_pairs(tmp_path, "text", pairs)
    text = cleaned(tmp_path / "clean", [(tmp_path / "text.en", tmp_path / "text.de")])
    whole = Vocabulary(vocabulary)
    short, long, longest = (len(ids) for ids in whole.encode(["eins", five, f"{five} {five}"]))
    limits = DataConfig(
        corpus=CLDR_EN_DE,
        max_length=longest - 1,
        max_length_ratio=long / short - 0.01,
        drop_duplicates=True,
    )
    (fates,) = encode(text, vocabulary, limits, tmp_path / "train", workers=1)
    assert fates == {KEPT: 1, UNEQUAL: 1, DUPLICATE: 1, TOO_LONG: 1}
    store = TokenStore(tmp_path / "train")
    assert [store[0][side].tolist() for side in (0, 1)] == whole.encode(["one", "eins"])
