"""Scores of parses, worked by hand and compared with PYEVALB's and supar's."""

from __future__ import annotations

from random import Random

import pytest

from tests.evaluation.damage import damaged, random_tree
from transformer.data.trees import Tree, read_trees, to_penn
from transformer.errors import InputError
from transformer.evaluation.parsing import (
    BracketScores,
    evaluate_parses,
    most_frequent_label,
    right_branching,
)

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
    # Brackets and currency are words; so is a comma with another tag.
    ("(S (-LRB- -LRB-) (N a))", "(S (-LRB- -LRB-) (N a))", (1, 1, 1)),
    ("(S (X ,) (N a))", "(S (NP (X ,)) (N a))", (1, 1, 2)),
]


def read(text: str) -> Tree:
    (tree,) = read_trees(f"(TOP {text})", "by hand")
    return tree


@pytest.mark.parametrize(("gold", "found", "brackets"), BY_HAND)
def test_by_hand(gold: str, found: str, brackets: tuple[int, int, int]) -> None:
    matched, of_gold, of_found = brackets
    assert evaluate_parses([read(gold)], [read(found)]).all == BracketScores(
        sentences=1,
        errors=0,
        skipped=0,
        precision=100 * matched / of_found if of_found else 0.0,
        recall=100 * matched / of_gold if of_gold else 0.0,
        f1=200 * matched / (of_gold + of_found) if of_gold + of_found else 0.0,
        exact_match=100.0 if matched == of_gold == of_found else 0.0,
    )


def test_figures_are_of_all_sentences_together() -> None:
    golds = [read("(S (NP (N a)) (V b))"), read("(S (N a))")]
    founds = [read("(X (N a) (V b))"), read("(S (N a))")]
    scores = evaluate_parses(golds, founds).all
    assert (scores.precision, scores.recall) == (100 * 1 / 2, 100 * 1 / 3)
    assert (scores.f1, scores.exact_match) == (pytest.approx(40.0), 50.0)


@pytest.mark.parametrize(
    "found",
    [
        "(S (N a) (X ,) (N b))",  # the comma is a word here
        "(S (N a) (, ,) (, b))",  # a word is punctuation here
        "(S (N a))",
        "(S (N a) (, ,) (N c))",
    ],
)
def test_other_words_after_deletion_are_an_error_and_left_out(found: str) -> None:
    golds = [read("(S (N a) (, ,) (N b))"), read("(S (N a))")]
    scores = evaluate_parses(golds, [read(found), read("(S (N a))")]).all
    assert (scores.sentences, scores.errors, scores.skipped) == (2, 1, 0)
    assert scores.f1 == scores.exact_match == 100.0


def test_a_parse_of_punctuation_alone_is_skipped() -> None:
    scores = evaluate_parses([read("(S (. .))"), read("(S (N a))")], [read("(S (. .))")] * 2).all
    assert (scores.sentences, scores.errors, scores.skipped, scores.f1) == (2, 0, 2, 0.0)


def test_wrong_tags_of_punctuation_need_not_be_errors() -> None:
    gold = read("(S (N a) (, ,) (NP (N b)))")
    found = read("(S (, a) (N ,) (NP (N b)))")
    assert evaluate_parses([gold], [found]).all.errors == 1
    scores = evaluate_parses([gold], [found], gold_punctuation=True).all
    assert (scores.errors, scores.f1) == (0, 100.0)


def test_the_short_sentences_have_40_words_with_punctuation() -> None:
    def flat(count: int) -> Tree:
        return read(f"(S {'(N a) ' * (count - 1)} (. .))")

    scores = evaluate_parses([flat(40), flat(41)], [flat(40), flat(41)])
    assert (scores.all.sentences, scores.up_to_40.sentences) == (2, 1)


def test_another_number_of_parses_is_refused() -> None:
    with pytest.raises(InputError, match="there are 1 parses but 2 references"):
        evaluate_parses([read("(N a)")] * 2, [read("(N a)")])


def test_equal_to_pyevalb_and_supar() -> None:
    """What PYEVALB 0.1.3 and supar 1.1.4 count for 400 random trees, each with a damaged copy.

    supar deletes punctuation and counts constituents as often as they occur, but has no errors and
    no tags: sentences with an error were left out. PYEVALB has both, but deletes nothing and
    compares sets: it was given trees without punctuation, in which repeated constituents have
    numbers.
    """
    rng = Random(2015)
    golds = [random_tree(rng) for _ in range(400)]
    founds = [damaged(tree, rng) for tree in golds]
    matched, gold, found, exact = 6617, 7818, 7274, 33
    assert evaluate_parses(golds, founds).all == BracketScores(
        sentences=400,
        errors=22,
        skipped=1,
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
