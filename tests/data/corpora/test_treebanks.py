"""Treebanks as corpora: which files, in which order, and what is missing."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from transformer.config import from_dict, to_dict
from transformer.corpus import Corpus
from transformer.data.corpora.treebanks import (
    CRAFT,
    CRAFT_SHORT,
    PENN,
    TreebankText,
    craft,
    leaves_of,
    penn_treebank,
)
from transformer.errors import InputError

SECTIONS = {"train": range(2, 22), "valid": [22], "test": [23]}


def write_wsj(folder: Path, name: str = "wsj_{n:02d}{m:02d}.mrg") -> Path:
    """Two files of two trees in each section from 00 to 24."""
    for n in range(25):
        (folder / f"{n:02d}").mkdir(parents=True)
        for m in (1, 0):
            text = f"( (S (NP-SBJ (NN w{n})) (VP (VB f{m}))))\n\n( (NP (NN a)\n (NN b) (. .)))\n"
            (folder / f"{n:02d}" / name.format(n=n, m=m)).write_text(text)
        (folder / f"{n:02d}" / "readme.txt").write_text("no trees")
    return folder


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


@pytest.mark.parametrize("corpus", [CRAFT, CRAFT_SHORT, craft("words", 40)], ids=str)
def test_a_declaration_survives_json(corpus: Corpus) -> None:
    assert from_dict(Corpus, to_dict(corpus)) == corpus
    assert corpus.task == "parsing"
    for file in corpus.files:
        assert TreebankText.of(file.location).location == file.location
        assert not file.is_path and not file.is_download


def test_what_stands_for_words_is_known_from_the_declaration() -> None:
    assert [leaves_of(craft(x)) for x in ("XX", "words")] == ["XX", "words"]
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
