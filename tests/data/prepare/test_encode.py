"""The training store: how lines are encoded and which pairs are dropped."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.samples import number_pairs, write_pairs
from transformer.data.prepare.clean import KEPT, clean
from transformer.data.prepare.encode import (
    DUPLICATE,
    TOO_LONG,
    UNEQUAL,
    Encoding,
    WordByWord,
    encode,
)
from transformer.data.store import TokenStore
from transformer.data.text import normalise
from transformer.data.vocabulary import Vocabulary, train_vocabulary

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


def encoded(folder: Path, pairs: list[tuple[str, str]], rules: Encoding) -> Counter[str]:
    folder.mkdir()
    write_pairs(folder, "text", pairs)
    text = clean([(folder / "text.en", folder / "text.de")], folder / "clean", workers=1)
    (fates,) = encode(text, rules, folder / "train", workers=1)
    return fates


def test_dropped_pairs_have_a_reason(tmp_path: Path, vocabulary: Path) -> None:
    five = "one one one one one"
    pairs = [("one", "eins"), (five, "eins"), ("one", "eins"), (f"{five} {five}", five)]
    whole = Vocabulary(vocabulary)
    short, long, longest = (len(ids) for ids in whole.encode(["eins", five, f"{five} {five}"]))
    rules = Encoding(
        vocabulary=vocabulary,
        max_length=longest - 1,
        max_length_ratio=long / short - 0.01,
        drop_duplicates=True,
    )
    fates = encoded(tmp_path / "work", pairs, rules)
    assert fates == {KEPT: 1, UNEQUAL: 1, DUPLICATE: 1, TOO_LONG: 1}
    store = TokenStore(tmp_path / "work" / "train")
    assert [store[0][side].tolist() for side in (0, 1)] == whole.encode(["one", "eins"])
