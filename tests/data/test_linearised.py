"""Trees as lines, and lines as trees."""

from __future__ import annotations

from dataclasses import replace
from random import Random

import pytest

from tests.evaluation.damage import random_tree
from transformer.data.linearised import (
    BRACKETS,
    PUNCTUATION,
    WORD,
    delinearise,
    leaf_forms,
    linearise,
)
from transformer.data.trees import Tree, read_trees, words
from transformer.errors import InputError

(TREE,) = read_trees(
    "( (S (NP-SBJ (PRP We)) (VP (VBP like) (NP (NNS trees) (-RRB- -RRB-))) (. ?)))", "x"
)


def without_tags(tree: Tree) -> Tree:
    if tree.word is None:
        return replace(tree, children=tuple(map(without_tags, tree.children)))
    return tree if tree.label in PUNCTUATION else replace(tree, label=WORD)


def test_the_forms_of_a_line() -> None:
    assert linearise(TREE) == "(S (NP XX )NP (VP XX (NP XX XX )NP )VP . )S"
    assert linearise(TREE, "words") == "(S (NP We )NP (VP like (NP trees -RRB- )NP )VP . )S"


def test_a_linearised_tree_comes_back() -> None:
    rng = Random(3)
    for tree in (TREE, *(random_tree(rng) for _ in range(50))):
        assert delinearise(linearise(tree), words(tree)) == without_tags(tree)
        assert delinearise(linearise(tree, "words"), words(tree)) == without_tags(tree)


def test_each_leaf_of_a_tree_is_a_form_of_its_word() -> None:
    assert leaf_forms("trees", "words") == ["trees"]
    assert leaf_forms("f(x)", "words") == ["f-LRB-x-RRB-"]
    assert leaf_forms("f(x)", "XX") == ["XX"]
    assert leaf_forms("?", "words") == ["?", "''", ",", ".", ":", "``"]


@pytest.mark.parametrize(
    ("line", "problem"),
    [
        ("(S XX )S", "ends before its 2 words"),
        ("(S XX XX XX )S", "more leaves than its 2 words"),
        ("(S XX XX", "ends before its 2 words and brackets do"),
        ("(S (NP XX )S XX )NP", "a bracket )S that closes nothing"),
        ("XX XX )S", "a bracket )S that closes nothing"),
        ("(S (NP )NP XX XX )S", "a bracket )NP that closes nothing"),
    ],
)
def test_what_is_no_tree_is_refused(line: str, problem: str) -> None:
    with pytest.raises(InputError) as caught:
        delinearise(line, ["a", "b"])
    assert problem in str(caught.value) and "\n" not in str(caught.value)


def test_a_vocabulary_keeps_brackets_and_nothing_else() -> None:
    tokens = ["(S", ")NP", "XX", "XXL", ".", "-LRB-", "a", "(", ")"]
    assert [x for x in tokens if BRACKETS.fullmatch(x)] == ["(S", ")NP", "XX"]
