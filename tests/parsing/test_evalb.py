"""Scores of parses, worked by hand and compared with PYEVALB's and supar's."""

from __future__ import annotations

from random import Random

import pytest

from tests.parsing.damage import damaged, random_tree
from transformer.parsing.evalb import (
    BracketScores,
    evaluate_lines,
    evaluate_parses,
    most_frequent_label,
    right_branching,
)
from transformer.parsing.trees import PUNCTUATION, Tree, leaves, read_trees, to_penn

# Reference, parse, and by hand: constituents that match, of the reference, of the parse.
# Spans are over the words a b c …; TOP stands around each tree.
BY_HAND = [
    # The same tree.
    ("(S (NP (N a)) (V b))", "(S (NP (N a)) (V b))", (2, 2, 2)),
    # Another label, another span, one constituent less, one more.
    ("(S (NP (N a)) (V b))", "(S (PP (N a)) (V b))", (1, 2, 2)),
    ("(S (NP (D a) (N b)) (V c))", "(S (D a) (NP (N b) (V c)))", (1, 2, 2)),
    ("(S (NP (N a)) (V b))", "(S (N a) (V b))", (1, 2, 1)),
    ("(S (N a) (V b))", "(S (N a) (VP (V b)))", (1, 1, 2)),
    # Nothing matches; there is nothing to match.
    ("(S (N a) (V b))", "(X (N a) (V b))", (0, 1, 1)),
    ("(N a) (V b)", "(N a) (V b)", (0, 0, 0)),
    ("(S (N a))", "(N a)", (0, 1, 0)),
    # Tags do not make constituents differ.
    ("(S (NP (N a)) (V b))", "(S (NP (X a)) (V b))", (2, 2, 2)),
    # Unary chains: each label counts, in any order, as often as it occurs.
    ("(S (VP (V a)))", "(VP (S (V a)))", (2, 2, 2)),
    ("(NP (NP (N a)))", "(NP (N a))", (1, 2, 1)),
    ("(NP (N a))", "(NP (NP (NP (N a))))", (1, 1, 3)),
    # ADVP and PRT are the same.
    ("(VP (V a) (PRT (R b)))", "(VP (V a) (ADVP (R b)))", (2, 2, 2)),
    ("(ADVP (PRT (R a)))", "(ADVP (R a))", (1, 2, 1)),
    # A TOP within a tree does not count either.
    ("(S (N a))", "(TOP (S (N a)))", (1, 1, 1)),
    # Punctuation is deleted: where it is attached does not matter, nor do brackets of nothing else.
    (
        "(S (NP (N a) (, ,)) (V b) (. .))",
        "(S (NP (N a)) (, ,) (VP (V b) (. .)))",
        (2, 2, 3),
    ),
    ("(S (N a) (PRN (: --)) (V b))", "(S (N a) (: --) (V b))", (1, 1, 1)),
    ("(S (`` ``) (N a) ('' ''))", "(S (`` ``) (NP (N a) ('' '')))", (1, 1, 2)),
    # Brackets and currency are words; so is a comma with another tag in the reference.
    ("(S (-LRB- -LRB-) (N a))", "(S (-LRB- -LRB-) (N a))", (1, 1, 1)),
    ("(S (X ,) (N a))", "(S (NP (, ,)) (N a))", (1, 1, 2)),
    ("(S (N a) (, ,) (NP (N b)))", "(S (, a) (N ,) (NP (N b)))", (2, 2, 2)),
]


def read(text: str) -> Tree:
    (tree,) = read_trees(f"(TOP {text})", "by hand")
    return tree


@pytest.mark.parametrize(("gold", "found", "brackets"), BY_HAND)
def test_scores_by_hand(gold: str, found: str, brackets: tuple[int, int, int]) -> None:
    matched, of_gold, of_found = brackets
    assert evaluate_parses([read(gold)], [read(found)]) == BracketScores(
        sentences=1,
        precision=100 * matched / of_found if of_found else 0.0,
        recall=100 * matched / of_gold if of_gold else 0.0,
        f1=200 * matched / (of_gold + of_found) if of_gold + of_found else 0.0,
        exact_match=100.0 if matched == of_gold == of_found else 0.0,
    )


def test_figures_are_of_all_sentences_together_that_have_a_word() -> None:
    golds = [read("(S (NP (N a)) (V b))"), read("(S (N a))"), read("(S (. .))")]
    founds = [read("(X (N a) (V b))"), read("(S (N a))"), read("(S (. .))")]
    scores = evaluate_parses(golds, founds)
    assert (scores.precision, scores.recall) == (100 * 1 / 2, 100 * 1 / 3)
    assert (scores.sentences, scores.f1, scores.exact_match) == (3, pytest.approx(40.0), 50.0)


@pytest.mark.slow
def test_equal_to_pyevalb_and_supar() -> None:
    """What PYEVALB 0.1.3 and supar 1.1.4 count for 400 random trees, each with a damaged copy.

    supar deletes punctuation and counts constituents as often as they occur, but has no errors and
    no tags. PYEVALB has both, but deletes nothing and compares sets: it was given trees without
    punctuation, in which repeated constituents have numbers. The 22 sentences whose two trees have
    other punctuation are errors to EVALB and were left out.
    """
    rng = Random(2015)
    golds = [random_tree(rng) for _ in range(400)]
    pairs = [(tree, damaged(tree, rng)) for tree in golds]

    def punctuation(tree: Tree) -> list[bool]:
        return [leaf.label in PUNCTUATION for leaf in leaves(tree)]

    same = [pair for pair in pairs if punctuation(pair[0]) == punctuation(pair[1])]
    matched, gold, found, exact = 6617, 7818, 7274, 33
    assert evaluate_parses(*zip(*same, strict=True)) == BracketScores(
        sentences=400 - 22,
        precision=100 * matched / found,
        recall=100 * matched / gold,
        f1=200 * matched / (gold + found),
        exact_match=100 * exact / (400 - 22 - 1),
    )


def test_the_trivial_parse_branches_to_the_right() -> None:
    assert [to_penn(right_branching(x.split(), "NP")) for x in ("a b c .", "a", "")] == [
        "(TOP (NP (XX a) (NP (XX b) (NP (XX c) (. .)))))",
        "(TOP (NP (XX a)))",
        "(TOP)",
    ]
    assert len(to_penn(right_branching(["a"] * 3_000, "NP"))) > 3_000


def test_the_most_frequent_label() -> None:
    trees = [read("(S (NP (N a)) (VP (V b) (NP (N c))))"), read("(S (PRN (: :)) (PRN (, ,)))")]
    assert most_frequent_label(trees) == "NP"


SENTENCES = ["The cat sleeps .", "It eats fish ."]
TREES = ["(S (NP XX XX )NP (VP XX )VP . )S", "(S (NP XX )NP (VP XX (NP XX )NP )VP . )S"]


def test_perfect_lines_score_100_and_the_baseline_less() -> None:
    found, baseline = evaluate_lines(SENTENCES, TREES, TREES)
    assert (found.f1, found.exact_match, found.sentences) == (100, 100, 2)
    assert 0 < baseline.f1 < 60
    spelt = [
        "(S (NP The cat )NP (VP sleeps )VP . )S",
        "(S (NP It )NP (VP eats (NP fish )NP )VP . )S",
    ]
    assert evaluate_lines(SENTENCES, spelt, spelt) == (found, baseline)
    one, _ = evaluate_lines(
        SENTENCES, TREES, ["", TREES[1]]
    )  # the first was too long for the model
    assert (one.f1, one.sentences) == (100, 1)
