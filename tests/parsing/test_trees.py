"""Trees of treebank files, and as lines of corpora."""

from __future__ import annotations

import os
import re
from dataclasses import replace
from pathlib import Path
from random import Random

import pytest

from tests.parsing.damage import random_tree
from tests.samples import write_wsj
from transformer.config import Config, DataConfig, ModelConfig
from transformer.corpus import Corpus, TextFile
from transformer.data.fetch.texts import fetch
from transformer.data.prepare.prepare import prepare
from transformer.data.text import read_text
from transformer.errors import InputError
from transformer.parsing import treebanks
from transformer.parsing.treebanks import (
    CRAFT,
    CRAFT_SHORT,
    PENN,
    TreebankText,
    leaves_of,
    penn_treebank,
)
from transformer.parsing.trees import (
    MAX_DEPTH,
    PUNCTUATION,
    TOP,
    WORD,
    Tree,
    delinearise,
    leaves,
    linearise,
    read_trees,
    to_penn,
    words,
)

WSJ = """
( (S
    (NP-SBJ-1 (NNP Mr.) (NNP Vinken) )
    (VP (VBZ is)
      (VP (VBN called)
        (S (NP-SBJ (-NONE- *-1) )
           (NP-PRD (-LRB- -LRB-) (NN chairman) (-RRB- -RRB-) ))))
    (. .) ))
(TOP (S (NP=2 (PRP It)) (VP (VBD shut) (ADVP|PRT (RP down)))))(S (-NONE- *) (X (-NONE- 0)))
(ROOT (NN Yes) (. !))
(UH No)
"""


def test_trees_are_made_normal() -> None:
    assert [to_penn(tree) for tree in read_trees(WSJ, "wsj")] == [
        "(TOP (S (NP (NNP Mr.) (NNP Vinken)) (VP (VBZ is) (VP (VBN called) "
        "(S (NP (-LRB- -LRB-) (NN chairman) (-RRB- -RRB-))))) (. .)))",
        "(TOP (S (NP (PRP It)) (VP (VBD shut) (ADVP (RP down)))))",
        "(TOP (NN Yes) (. !))",
        "(TOP (UH No))",
    ]


def test_unary_chains_stay_and_words_come_in_order_and_whole() -> None:
    (tree,) = read_trees("( (NP (NP (NP (NN a) (-NONE- *)) (NP (-NONE- *))) (NN b)))", "x")
    assert to_penn(tree) == "(TOP (NP (NP (NP (NN a))) (NN b)))"
    assert words(tree) == ["a", "b"]
    assert [leaf.label for leaf in leaves(tree)] == ["NN", "NN"]
    (tree,) = read_trees("((N\u00a0P\r\n\t(NN\u00a0 X\x1cpd\u2009XP)\f(NN\u00a0 \u00a0)))", "x")
    assert words(tree) == ["XpdXP"]
    assert linearise(tree, "words") == "(NP XpdXP )NP"
    tree = Tree(TOP, (Tree("NP", (Tree("NN", word="f(x)"),)),))
    (again,) = read_trees(to_penn(tree), "x")
    assert words(again) == ["f-LRB-x-RRB-"]


@pytest.mark.parametrize(
    "empty", ["(())", "()", "( )", "( () )", "((()))", "(TOP)", "(S1 )", "(TOP (S))", "((S ()))"]
)
def test_a_tree_without_a_word_is_left_out(empty: str) -> None:
    text = f"(S (NN a)){empty}\n{empty}\n( (S () (NP (NN b) ( )) (NP ())) ())"
    assert [to_penn(tree) for tree in read_trees(text, "x")] == [
        "(TOP (S (NN a)))", "(TOP (S (NP (NN b))))",
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("(S (NN a))\n\n(S\n (NP (NN b)", "line 3: the tree that begins here does not close"),
        ("(S (NN a)))", r"line 1: '\)' is out of place: a bracket holds a tag and one word"),
        ("(S (NN a))\nword", "line 2: 'word' is out of place"),
        ("(S (NN a)\n(NP ))", r"line 2: '\(NP' is out of place"),
        ("(S (-LRB- ())", r"line 1: '\(\)\)' is out of place.*words that are brackets are written"),
        ("()\n(S (-LRB- ()\n(NN a))\n(S (NN b))", r"line 2: '\(\)' is out of place"),
        ("(S (-LRB- () (NN a) (-RRB- )))", r"line 1: '\(-RRB-' is out of place"),
        ("(S ((NN a)))", r"line 1: '\(\(NN' is out of place"),
        ("(S (NP a b))", "line 1: 'a' is out of place"),
        ("(S (NN a)\nb)", r"line 2: 'b\)' is out of place"),
        ("(S" * (MAX_DEPTH + 1), f"line 1: a tree is more than {MAX_DEPTH} brackets deep"),
    ],
)
def test_bad_trees_are_refused_with_their_line(text: str, problem: str) -> None:
    with pytest.raises(InputError, match=f"^bad.mrg, {problem}"):
        list(read_trees(text, "bad.mrg"))


(TREE,) = read_trees(
    "( (S (NP-SBJ (PRP We)) (VP (VBP like) (NP (NNS trees) (-RRB- -RRB-))) (. ?)))", "x"
)


def without_tags(tree: Tree) -> Tree:
    if tree.word is None:
        return replace(tree, children=tuple(map(without_tags, tree.children)))
    return tree if tree.label in PUNCTUATION else replace(tree, label=WORD)


def test_a_linearised_tree_comes_back() -> None:
    assert linearise(TREE) == "(S (NP XX )NP (VP XX (NP XX XX )NP )VP . )S"
    assert linearise(TREE, "words") == "(S (NP We )NP (VP like (NP trees -RRB- )NP )VP . )S"
    rng = Random(3)
    for tree in (TREE, *(random_tree(rng) for _ in range(50))):
        assert delinearise(linearise(tree), words(tree)) == without_tags(tree)
        assert delinearise(linearise(tree, "words"), words(tree)) == without_tags(tree)


@pytest.mark.parametrize(
    ("line", "problem"),
    [
        ("(S XX )S", "ends before its 2 words"),
        ("(S XX XX XX )S", "more leaves than its 2 words"),
        ("(S XX XX", "ends before its 2 words and brackets do"),
        ("(S (NP XX )S XX )NP", "a bracket )S that closes nothing"),
        ("XX XX )S", "a bracket )S that closes nothing"),
        ("(S (NP )NP XX XX )S", "a bracket )NP that closes nothing"),
        ("(S " * (MAX_DEPTH + 1), f"a tree is more than {MAX_DEPTH} brackets deep"),
    ],
)
def test_what_is_no_tree_is_refused(line: str, problem: str) -> None:
    with pytest.raises(InputError) as caught:
        delinearise(line, ["a", "b"])
    assert problem in str(caught.value) and "\n" not in str(caught.value)


def test_a_treebank_file_that_memory_should_not_hold_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    corpus = penn_treebank(write_wsj(tmp_path / "wsj"))
    monkeypatch.setattr(treebanks, "MAX_TEXT", 40)
    with pytest.raises(InputError, match=r"wsj_0200\.mrg has more than 40 bytes: split it"):
        fetch(corpus.train[0].source)


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
    assert files(CRAFT_SHORT, "test") == files(CRAFT, "test")
    assert [leaves_of(x) for x in (CRAFT, CRAFT_SHORT, PENN)] == ["words", "words", "XX"]


@pytest.mark.parametrize("below", ["", "wsj", "mrg/wsj", "parsed/mrg/wsj"])
def test_the_paper_s_sections_are_found_in_the_ldc_s_layout(below: str, tmp_path: Path) -> None:
    wsj = write_wsj(tmp_path / below)
    corpus = penn_treebank(tmp_path)
    for split, sections in {"train": range(2, 22), "valid": [22], "test": [23]}.items():
        assert files(corpus, split) == [
            str(wsj / f"{n:02d}" / f"wsj_{n:02d}{m:02d}.mrg") for n in sections for m in (0, 1)
        ]
    assert corpus.pairs == 39_832


def test_missing_sections_are_named(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="holds no sections of the Penn Treebank: name the folder"):
        penn_treebank(tmp_path)
    write_wsj(tmp_path / "wsj")
    corpus = penn_treebank(tmp_path)
    for path in (tmp_path / "wsj" / "23").glob("*.mrg"):
        path.unlink()
    with pytest.raises(InputError, match=r"wsj lacks the \*.mrg of section 23: training takes"):
        penn_treebank(tmp_path)
    with pytest.raises(InputError, match=r"lacks the \*.mrg of section 23: "):
        files(corpus, "test")  # removed since it was declared


@pytest.mark.parametrize("location", ["treebank:craft/dev.XX", "treebank:craft/train.text"])
def test_other_locations_are_refused(location: str) -> None:
    with pytest.raises(InputError, match=f"{location} is not a text of a treebank: write"):
        TreebankText.of(location)


def lines(corpus: Corpus, split: str) -> tuple[list[str], list[str]]:
    (text,) = corpus.splits[split]
    return read_text(fetch(text.source)), read_text(fetch(text.target))


def test_both_sides_have_a_line_for_each_tree_unless_it_is_too_long(tmp_path: Path) -> None:
    wsj = write_wsj(tmp_path / "wsj")
    sentences, trees = lines(penn_treebank(wsj), "valid")
    assert sentences == ["w22 f0", "a b .", "w22 f1", "a b ."]
    assert trees == ["(S (NP XX )NP (VP XX )VP )S", "(NP XX XX . )NP"] * 2
    train, short, short_trees = (
        read_text(fetch(TextFile(location=f"treebank:{wsj}/{name}")))
        for name in ("train.words", "test-2.sentences", "test-2.words")
    )
    assert len(train) == 20 * 4 and train[0] == "(S (NP w2 )NP (VP f0 )VP )S"
    assert short == ["w23 f0", "w23 f1"]
    assert short_trees == ["(S (NP w23 )NP (VP f0 )VP )S", "(S (NP w23 )NP (VP f1 )VP )S"]


def test_changed_trees_are_read_again(tmp_path: Path) -> None:
    corpus = penn_treebank(write_wsj(tmp_path / "wsj"))
    before = lines(corpus, "valid")
    assert lines(corpus, "valid") == before
    (tmp_path / "wsj" / "22" / "wsj_2200.mrg").write_bytes(b"\xef\xbb\xbf(NP (NN new))\r\n")
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


def test_a_treebank_is_prepared(tmp_path: Path) -> None:
    data = DataConfig(corpus=penn_treebank(write_wsj(tmp_path / "wsj")))
    prepared = prepare(Config(model=ModelConfig(vocab_size=53), data=data))
    counts = [(text.lines, text.kept) for text in prepared.report()]
    assert counts == [(80, 80), (4, 4), (4, 4)]
    vocabulary = prepared.vocabulary()
    sources, targets = prepared.text("test")
    ids = vocabulary.encode(targets)
    assert [len(x) - 1 for x in ids] == [len(line.split()) for line in targets]
    assert list(map(vocabulary.decode, ids)) == targets
    trees = [delinearise(*pair) for pair in zip(targets, map(str.split, sources), strict=True)]
    assert [to_penn(tree) for tree in trees[:2]] == [
        "(TOP (S (NP (XX w23)) (VP (XX f0))))",
        "(TOP (NP (XX a) (XX b) (. .)))",
    ]
