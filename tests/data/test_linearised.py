"""Trees as lines, and whatever line as a tree."""

from __future__ import annotations

from dataclasses import replace
from random import Random
from typing import get_args

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.evaluation.damage import random_tree
from transformer.data.linearised import (
    BRACKETS,
    PUNCTUATION,
    WORD,
    Leaves,
    delinearise,
    linearise,
)
from transformer.data.trees import MAX_DEPTH, TOP, Tree, read_trees, to_penn, words

(TREE,) = read_trees(
    "( (S (NP-SBJ (PRP We)) (VP (VBP like) (NP (NNS trees) (-RRB- -RRB-))) (. ?)))", "x"
)


def without_tags(tree: Tree) -> Tree:
    if tree.word is None:
        return replace(tree, children=tuple(map(without_tags, tree.children)))
    return tree if tree.label in PUNCTUATION else replace(tree, label=WORD)


def test_the_forms_of_a_line() -> None:
    assert linearise(TREE) == "(S (NP XX )NP (VP XX (NP XX XX )NP )VP . )S"
    assert linearise(TREE, "tags") == "(S (NP PRP )NP (VP VBP (NP NNS -RRB- )NP )VP . )S"
    assert linearise(TREE, "words") == "(S (NP We )NP (VP like (NP trees -RRB- )NP )VP . )S"


def test_a_linearised_tree_comes_back_unrepaired() -> None:
    rng = Random(3)
    for tree in (TREE, *(random_tree(rng) for _ in range(50))):
        sentence = words(tree)
        assert delinearise(linearise(tree), sentence) == (without_tags(tree), False)
        assert delinearise(linearise(tree, "tags"), sentence, "tags") == (tree, False)
    assert delinearise(linearise(TREE, "words"), words(TREE), "words") == (
        without_tags(TREE),
        False,
    )


@pytest.mark.parametrize(
    ("line", "repaired"),
    [
        ("(S (NP XX )NP (VP XX )VP )S", "(S (NP (XX a)) (VP (XX b)) (XX c))"),  # too few leaves
        ("(S (NP XX XX XX XX )NP XX )S", "(S (NP (XX a) (XX b) (XX c)))"),  # too many
        ("", "(XX a) (XX b) (XX c)"),
        ("XX", "(XX a) (XX b) (XX c)"),
        ("(S (NP XX )S XX XX", "(S (XX a)) (XX b) (XX c)"),  # (NP is not closed
        ("(S (S (NP XX )S XX )S XX", "(S (S (XX a)) (XX b)) (XX c)"),
        ("(S (NP (NP XX )S XX XX", "(S (NP (NP (XX a) (XX b) (XX c))))"),  # )S is too far away
        ("(S (NP XX )VP XX XX )NP )S", "(S (NP (XX a) (XX b) (XX c)))"),  # was not open
        (")S (S XX XX XX )S )S", "(S (XX a) (XX b) (XX c))"),
        (")TOP (S XX XX XX )S )TOP", "(S (XX a) (XX b) (XX c))"),
        ("(S XX (NP XX XX", "(S (XX a) (NP (XX b) (XX c)))"),  # left open
        ("(S (NP )NP XX XX XX )S", "(S (XX a) (XX b) (XX c))"),  # holds no words
        ("( (S XX XX ) XX )S", "(S (XX a) (XX b) (XX c))"),  # no label
        ("(S (NP-SBJ XX X) XX -NONE- XX )S", "(S (XX a) (XX b) (XX c))"),
    ],
)
def test_repairs(line: str, repaired: str) -> None:
    tree, was_repaired = delinearise(line, ["a", "b", "c"])
    assert was_repaired
    assert to_penn(tree) == f"(TOP {repaired})"


def test_an_endless_nest_is_flattened() -> None:
    line = " ".join(["(S"] * 5_000 + ["XX"] + [")S"] * 5_000)
    tree, was_repaired = delinearise(line, ["a"])
    assert was_repaired
    assert to_penn(tree).count("(S") == MAX_DEPTH - 1


def test_a_wrong_word_counts_as_a_repair() -> None:
    line = linearise(TREE, "words").replace("like", "love")
    assert delinearise(line, words(TREE), "words") == (without_tags(TREE), True)


@pytest.mark.parametrize(
    ("line", "tree"),
    [
        ("(NP a )NP (VP c d )VP", "(NP (XX a) (XX b)) (VP (XX c) (XX d))"),  # b is missing
        ("(NP b )NP (VP c d )VP", "(NP (XX a) (XX b)) (VP (XX c) (XX d))"),  # the first is
        ("(NP a b )NP (VP c )VP", "(NP (XX a) (XX b)) (VP (XX c) (XX d))"),  # the last is
        ("(NP a x b )NP (VP c d )VP", "(NP (XX a) (XX b)) (VP (XX c) (XX d))"),  # x is too much
        ("(NP a x )NP (VP y d )VP", "(NP (XX a) (XX b)) (VP (XX c) (XX d))"),  # misspelt
        ("(NP x )NP (VP d )VP", "(NP (XX a) (XX b) (XX c)) (VP (XX d))"),  # one for three
    ],
)
def test_leaves_are_aligned_with_the_words(line: str, tree: str) -> None:
    found, was_repaired = delinearise(line, ["a", "b", "c", "d"], "words")
    assert (to_penn(found), was_repaired) == (f"(TOP {tree})", True)


TOKENS = ["(S", "(NP", ")S", ")NP", ")", "(", "()", "XX", ",", ".", "NN", "a(b", "\u00a0", "<unk>"]


@settings(max_examples=50)
@given(
    line=st.lists(st.sampled_from(TOKENS) | st.text(max_size=4)).map(" ".join),
    sentence=st.lists(st.sampled_from(["a", ",", "-LRB-", "(", "\u00e9"]), max_size=9),
    kind=st.sampled_from(get_args(Leaves)),
)
def test_any_line_gives_a_tree_over_exactly_these_words(
    line: str, sentence: list[str], kind: Leaves
) -> None:
    tree, was_repaired = delinearise(line, sentence, kind)
    assert words(tree) == sentence
    assert tree.label == TOP
    if sentence:
        (again,) = read_trees(to_penn(tree), "written")
        assert to_penn(again) == to_penn(tree)
    if not was_repaired and kind == "tags":
        assert linearise(tree, "tags") == " ".join(line.split())


def test_a_vocabulary_keeps_brackets_and_nothing_else() -> None:
    tokens = ["(S", ")NP", "XX", "XXL", ".", "-LRB-", "a", "(", ")"]
    assert [x for x in tokens if BRACKETS.fullmatch(x)] == ["(S", ")NP", "XX"]
