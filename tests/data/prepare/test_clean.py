"""Training pairs that are kept, and reasons to drop others."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import numpy as np
import pytest

from tests.samples import number_pairs, write_pairs
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
from transformer.data.prepare.encode import find_duplicates
from transformer.data.text import Lines
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
