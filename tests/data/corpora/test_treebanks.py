"""Treebanks: which files, in which order, and the lines that are written from them."""

from __future__ import annotations

import lzma
import os
import re
from pathlib import Path

import pytest

from tests.data.test_trees import without_tags
from tests.samples import write_wsj
from transformer.config import Config, DataConfig, ModelConfig
from transformer.corpus import Corpus, TextFile
from transformer.data.corpora.treebanks import (
    CRAFT,
    CRAFT_SHORT,
    PENN,
    TreebankText,
    leaves_of,
    penn_treebank,
)
from transformer.data.fetch.texts import fetch, missing
from transformer.data.prepare.prepare import prepare
from transformer.data.text import read_text
from transformer.data.trees import delinearise, read_trees, to_penn
from transformer.errors import InputError

SECTIONS = {"train": range(2, 22), "valid": [22], "test": [23]}


def files(corpus: Corpus, split: str) -> list[str]:
    (text,) = corpus.splits[split]
    return [file.location for file in TreebankText.of(text.source.location).files()]


def test_craft_is_split_by_article_in_the_order_of_names() -> None:
    splits = [files(CRAFT, split) for split in ("train", "valid", "test")]
    assert [len(split) for split in splits] == [77, 10, 10]
    locations = [location for split in splits for location in split]
    assert locations == sorted(set(locations))
    pattern = (
        r"https://raw\.githubusercontent\.com/UCDenver-ccp/CRAFT/[0-9a-f]{40}/.*/penn/\d+.tree"
    )
    assert all(re.fullmatch(pattern, location) for location in locations)
    for split in ("train", "valid", "test"):
        assert files(CRAFT_SHORT, split) == files(CRAFT, split)


def test_what_stands_for_words_is_known_from_the_declaration() -> None:
    assert [leaves_of(x) for x in (CRAFT, CRAFT_SHORT, PENN)] == ["words", "words", "XX"]


@pytest.mark.parametrize("below", ["", "wsj", "mrg/wsj", "parsed/mrg/wsj"])
def test_the_paper_s_sections_are_found_in_the_ldc_s_layout(below: str, tmp_path: Path) -> None:
    wsj = write_wsj(tmp_path / below)
    corpus = penn_treebank(tmp_path)
    for split, sections in SECTIONS.items():
        assert files(corpus, split) == [
            str(wsj / f"{n:02d}" / f"wsj_{n:02d}{m:02d}.mrg") for n in sections for m in (0, 1)
        ]
    assert corpus.pairs == 39_832


def test_missing_sections_are_named(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="holds no sections of the Penn Treebank: name the folder"):
        penn_treebank(tmp_path)
    write_wsj(tmp_path / "wsj")
    corpus = penn_treebank(tmp_path)
    for n in (7, 23):
        for path in (tmp_path / "wsj" / f"{n:02d}").glob("*.mrg"):
            path.unlink()
    with pytest.raises(
        InputError, match=r"wsj lacks the \*.mrg of sections 07, 23: training takes"
    ):
        penn_treebank(tmp_path)
    with pytest.raises(InputError, match=r"lacks the \*.mrg of section 23: "):
        files(corpus, "test")  # removed since it was declared


@pytest.mark.parametrize("location", ["treebank:craft/dev.XX", "treebank:craft/train.text"])
def test_other_locations_are_refused(location: str) -> None:
    with pytest.raises(InputError, match=f"{location} is no text of a treebank: write"):
        TreebankText.of(location)


def lines(corpus: Corpus, split: str) -> tuple[list[str], list[str]]:
    (text,) = corpus.splits[split]
    return read_text(fetch(text.source)), read_text(fetch(text.target))


def test_both_sides_have_a_line_for_each_tree(tmp_path: Path) -> None:
    corpus = penn_treebank(write_wsj(tmp_path / "wsj"))
    sentences, trees = lines(corpus, "valid")
    assert sentences == ["w22 f0", "a b .", "w22 f1", "a b ."]
    assert trees == ["(S (NP XX )NP (VP XX )VP )S", "(NP XX XX . )NP"] * 2
    words = read_text(fetch(TextFile(location=f"treebank:{tmp_path / 'wsj'}/train.words")))
    assert len(words) == 20 * 4
    assert words[0] == "(S (NP w2 )NP (VP f0 )VP )S"


def test_longer_sentences_are_left_out_of_both_sides(tmp_path: Path) -> None:
    location = f"treebank:{write_wsj(tmp_path / 'wsj')}/test-2"
    sentences, trees = (
        fetch(TextFile(location=f"{location}.{side}")) for side in ("sentences", "words")
    )
    assert sentences.read_text() == "w23 f0\nw23 f1\n"
    assert trees.read_text() == "(S (NP w23 )NP (VP f0 )VP )S\n(S (NP w23 )NP (VP f1 )VP )S\n"


def test_changed_trees_are_read_again(tmp_path: Path) -> None:
    corpus = penn_treebank(write_wsj(tmp_path / "wsj"))
    before = lines(corpus, "valid")
    assert lines(corpus, "valid") == before
    (tmp_path / "wsj" / "22" / "wsj_2200.mrg").write_text("(NP (NN new))")
    assert lines(corpus, "valid")[0] == ["new", "w22 f1", "a b ."]


@pytest.mark.parametrize(
    ("content", "problem"),
    [
        (b"( (S (NN a)))\n(S", "wsj_2201.mrg, line 2: the tree that begins here does not close"),
        (b"( (S (NN \xff)))", "wsj_2201.mrg cannot be read: 'utf-8' codec"),
    ],
)
def test_bad_trees_leave_nothing_behind(content: bytes, problem: str, tmp_path: Path) -> None:
    corpus = penn_treebank(write_wsj(tmp_path / "wsj"))
    (tmp_path / "wsj" / "22" / "wsj_2201.mrg").write_bytes(content)
    with pytest.raises(InputError, match=problem):
        lines(corpus, "valid")
    folder = Path(os.environ["DATA_CACHE"]) / "treebanks"
    assert [path for path in folder.iterdir() if path.suffix != ".lock"] == []


def test_the_articles_of_craft_are_missing_until_they_are_fetched() -> None:
    assert len(missing(CRAFT.files)) == 97


def config(corpus: Corpus, vocab_size: int = 53) -> Config:
    return Config(model=ModelConfig(vocab_size=vocab_size), data=DataConfig(corpus=corpus))


def test_a_treebank_is_prepared(tmp_path: Path) -> None:
    prepared = prepare(config(penn_treebank(write_wsj(tmp_path / "wsj"))), workers=1)
    assert [(x.split, x.lines, x.kept) for x in prepared.report()] == [
        ("train", 80, 80),
        ("valid", 4, 4),
        ("test", 4, 4),
    ]
    vocabulary = prepared.vocabulary()
    sources, targets = prepared.text("test")
    ids = vocabulary.encode(targets)
    assert [len(x) - 1 for x in ids] == [len(line.split()) for line in targets]
    assert vocabulary.decode(ids) == targets
    trees = [delinearise(*pair) for pair in zip(targets, map(str.split, sources), strict=True)]
    assert [to_penn(tree) for tree in trees[:2]] == [
        "(TOP (S (NP (XX w23)) (VP (XX f0))))",
        "(TOP (NP (XX a) (XX b) (. .)))",
    ]


@pytest.mark.slow
@pytest.mark.skipif(
    not {"DATA_MIRROR", "DATA_FILES"} <= set(os.environ),
    reason="needs CRAFT, and a copy to compare",
)
@pytest.mark.parametrize(
    ("split", "different"),
    [
        ("train", []),
        # The copy lacks words that hold white space, such as "Xpd" and "XPCS" with a thin space.
        ("valid", [536, 541, 552, 655]),
    ],
)
def test_craft_equals_another_reader_s_copy(split: str, different: list[int]) -> None:
    copy = Path(os.environ["DATA_FILES"]) / "craft-treebank" / f"{split}.tree.xz"
    sentences, trees = (
        read_text(fetch(TextFile(location=f"treebank:craft/{split}.{side}")))
        for side in ("sentences", "XX")
    )
    found = [
        to_penn(delinearise(line, sentence.split()))
        for sentence, line in zip(sentences, trees, strict=True)
    ]
    copied = lzma.decompress(copy.read_bytes()).decode().splitlines()
    expected = [to_penn(without_tags(next(read_trees(line, "the copy")))) for line in copied]
    pairs = enumerate(zip(found, expected, strict=True))
    assert [n for n, (tree, other) in pairs if tree != other] == different
