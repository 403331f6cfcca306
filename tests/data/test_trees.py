"""Trees of treebank files, and as lines."""

from __future__ import annotations

from dataclasses import replace
from random import Random

import pytest

from tests.evaluation.damage import random_tree
from transformer.data.trees import (
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
from transformer.errors import InputError

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


def test_unary_chains_stay_and_words_come_in_order() -> None:
    (tree,) = read_trees("( (NP (NP (NP (NN a) (-NONE- *)) (NP (-NONE- *))) (NN b)))", "x")
    assert to_penn(tree) == "(TOP (NP (NP (NP (NN a))) (NN b)))"
    assert words(tree) == ["a", "b"]
    assert [leaf.label for leaf in leaves(tree)] == ["NN", "NN"]


def test_odd_white_space_in_a_word_does_not_split_it() -> None:
    (tree,) = read_trees("((NP\r\n\t(NN\u00a0 Xpd\u2009XP)\f(NN\u00a0 \u00a0)))", "x")
    assert words(tree) == ["XpdXP"]


def test_what_was_written_is_read_again() -> None:
    tree = Tree(TOP, (Tree("NP", (Tree("NN", word="f(x)"),)),))
    (again,) = read_trees(to_penn(tree), "x")
    assert words(again) == ["f-LRB-x-RRB-"]


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("(S (NN a))\n\n(S\n (NP (NN b)", "line 3: the tree that begins here does not close"),
        ("(S (NN a)))", r"line 1: '\)' is out of place: a bracket holds a tag and one word"),
        ("(S (NN a))\nword", "line 2: 'word' is out of place"),
        ("(S (NN a)\n(NP ))", r"line 2: '\(NP' is out of place"),
        ("(S (-LRB- ())", r"line 1: '\(\)\)' is out of place.*words that are brackets are written"),
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


def test_the_forms_of_a_line() -> None:
    assert linearise(TREE) == "(S (NP XX )NP (VP XX (NP XX XX )NP )VP . )S"
    assert linearise(TREE, "words") == "(S (NP We )NP (VP like (NP trees -RRB- )NP )VP . )S"


def test_a_linearised_tree_comes_back() -> None:
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
    ],
)
def test_what_is_no_tree_is_refused(line: str, problem: str) -> None:
    with pytest.raises(InputError) as caught:
        delinearise(line, ["a", "b"])
    assert problem in str(caught.value) and "\n" not in str(caught.value)
