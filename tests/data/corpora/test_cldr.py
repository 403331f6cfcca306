"""The built-in corpus: deterministic, disjoint, clean, and correct German."""

from __future__ import annotations

import hashlib
import os
import pathlib
import re
import subprocess
import sys
import unicodedata
from datetime import datetime
from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from transformer.data.corpora import cldr, cldr_phrases
from transformer.data.corpora.cldr import ENGLISH, GERMAN, Family, Pair, in_words

COUNT = 3_000
#: The digest of the first 500 pairs. If it changes, change the seed, which names the cache.
GOLDEN = {"2020-2.18.0-0.5.14": "01e3d47f4eb94af119224fc8687f13901401c09aeaca36980a180e8d531f5522"}
ROOT = pathlib.Path(__file__).parents[3]

seeds = st.integers(0, 2**32).map(Random)


def plain(pair: Pair) -> Pair:
    source, target = pair
    return " ".join(source.split()), " ".join(target.split())


@pytest.fixture(scope="module")
def drawn() -> list[Pair]:
    return cldr.pairs(cldr.SEED, COUNT)


def test_pairs_are_the_same_in_any_environment():
    script = "import sys\nfrom transformer.data.corpora import cldr\n"
    script += "sys.stdout.buffer.write(repr(cldr.pairs(7, 500)).encode())"
    places = (("1", "Asia/Kathmandu", "tr_TR.UTF-8"), ("2", "America/St_Johns", "C"))
    processes = [
        subprocess.Popen(
            [sys.executable, "-c", script],
            cwd=ROOT,
            env=os.environ
            | {"PYTHONHASHSEED": hash_seed, "TZ": zone, "LANG": lang, "LC_ALL": lang},
            stdout=subprocess.PIPE,
        )
        for hash_seed, zone, lang in places
    ]
    outputs = [process.communicate()[0] for process in processes]
    assert outputs == [repr(cldr.pairs(7, 500)).encode()] * 2


def test_pairs_have_the_golden_digest():
    if cldr.VERSION not in GOLDEN:
        pytest.skip(f"no digest is known for {cldr.VERSION}")
    digest = hashlib.sha256(repr(cldr.pairs(cldr.SEED, 500)).encode()).hexdigest()
    assert digest == GOLDEN[cldr.VERSION]


def test_a_smaller_count_is_a_prefix(drawn: list[Pair]):
    assert cldr.pairs(cldr.SEED, 101) == drawn[:101]


def test_sources_and_targets_are_unique(drawn: list[Pair]):
    assert len(drawn) == COUNT
    assert len({source for source, _ in drawn}) == COUNT
    assert len({target for _, target in drawn}) == COUNT


def test_lines_are_short_and_have_plain_spaces(drawn: list[Pair]):
    for line in (line for pair in drawn for line in pair):
        assert line == " ".join(re.split(r"\s+", line.strip()))
        assert 1 <= len(line.split(" ")) <= 25
        assert unicodedata.is_normalized("NFC", line)
        unusual = {c for c in line if unicodedata.category(c)[0] in "CZ"}
        assert unusual <= {" "}, line


def test_too_many_pairs_are_refused(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(cldr, "FAMILIES", {cldr_phrases.a_name: 1})
    with pytest.raises(ValueError, match=r"found only \d+ of 9999 distinct pairs"):
        cldr.pairs(1, 9_999)


def test_written_splits_are_aligned_and_disjoint(
    monkeypatch: pytest.MonkeyPatch, tmp_path: pathlib.Path
):
    monkeypatch.setattr(cldr, "PAIRS", 700)
    monkeypatch.setattr(cldr, "HELD_OUT", 100)
    cldr.write(tmp_path)
    sizes = {"train": 500, "valid": 100, "test": 100}
    names = {f"{split}.{language}" for split in sizes for language in ("en", "de")}
    assert {path.name for path in tmp_path.iterdir()} == names
    lines: dict[str, list[str]] = {}
    for name in names:
        content = (tmp_path / name).read_bytes()
        assert content.endswith(b"\n") and b"\r" not in content
        lines[name] = content.decode().removesuffix("\n").split("\n")
        assert len(lines[name]) == sizes[name.split(".")[0]]
        assert all(lines[name])
    for language in ("en", "de"):
        together = [line for split in sizes for line in lines[f"{split}.{language}"]]
        assert len(set(together)) == 700
    written = {
        pair
        for split in sizes
        for pair in zip(lines[f"{split}.en"], lines[f"{split}.de"], strict=True)
    }
    assert written == set(cldr.pairs(cldr.SEED, 700))


@pytest.mark.parametrize(
    ("number", "style", "english", "german"),
    [
        (27, "cardinal", "twenty-seven", "siebenundzwanzig"),
        (342, "cardinal", "three hundred and forty-two", "dreihundertzweiundvierzig"),
        (21_000, "cardinal", "twenty-one thousand", "einundzwanzigtausend"),
        (27, "ordinal", "twenty-seventh", "siebenundzwanzigste"),
        (1984, "year", "nineteen eighty-four", "neunzehnhundertvierundachtzig"),
    ],
)
def test_numbers_in_words(number: int, style: str, english: str, german: str):
    assert in_words(number, ENGLISH, style) == english
    assert in_words(number, GERMAN, style) == german


@pytest.mark.parametrize(
    ("english", "german"),
    [
        ("British Pound", "Britisches Pfund"),
        ("Polish and Dutch", "Polnisch und Niederländisch"),
        ("French, Japanese, or English", "Französisch, Japanisch oder Englisch"),
        ("Oct 23, 2008", "23.10.2008"),
        ("October 1995", "Oktober 1995"),
        ("9:10:45 AM", "09:10:45"),
        ("₹7.32", "7,32 ₹"),
        ("213 Chinese yuan", "213 Renminbi Yuan"),
        (
            "four hundred and sixty-seven Indian rupees",
            "vierhundertsiebenundsechzig Indische Rupien",
        ),
        ("nine hundred and forty-six gigabytes", "neunhundertsechsundvierzig Gigabyte"),
        ("687 liters and 16.3 days", "687 Liter und 16,3 Tage"),
    ],
)
def test_the_corpus_holds(drawn: list[Pair], english: str, german: str):
    assert dict(drawn)[english] == german


@settings(max_examples=60)
@given(rng=seeds)
def test_figures_survive_while_points_and_commas_swap(rng: Random):
    english, german = plain(cldr_phrases.measures(rng))
    swapped = str.maketrans(",.", ".,")
    figures = re.compile(r"\d(?:[\d.,]*\d)?")
    assert [f.translate(swapped) for f in figures.findall(english)] == figures.findall(german)


@settings(max_examples=60)
@given(rng=seeds)
def test_afternoon_hours_count_on_in_german(rng: Random):
    english, german = plain(cldr_phrases.a_time(rng))
    seconds = ":%S" if german.count(":") == 2 else ""
    moment = datetime.strptime(english, f"%I:%M{seconds} %p")
    assert moment.strftime(f"%H:%M{seconds}") == german


@settings(max_examples=200)
@given(
    rng=seeds,
    family=st.sampled_from((cldr_phrases.a_number, cldr_phrases.counted)),
)
def test_numbers_in_words_are_grammatical(rng: Random, family: Family):
    _, german = plain(family(rng))
    assert "einstausend" not in german
    if family is not cldr_phrases.a_number:
        assert not re.search(r"eins\b", german)
