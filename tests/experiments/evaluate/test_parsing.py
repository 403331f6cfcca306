"""A parser from training to trees: its scores, and the commands parse and evaluate."""

from __future__ import annotations

from experiments.evaluate.parsing import parse_lines, score_parses
from transformer.data.corpora.treebanks import CRAFT_SHORT, craft
from transformer.data.trees import to_penn

SENTENCES = ["The cat sleeps .", "It eats fish ."]
TREES = ["(S (NP XX XX )NP (VP XX )VP . )S", "(S (NP XX )NP (VP XX (NP XX )NP )VP . )S"]


def test_perfect_lines_score_100_and_the_baseline_less() -> None:
    found = score_parses(CRAFT_SHORT, SENTENCES, TREES, TREES)
    assert (found.f1, found.exact_match, found.repaired, found.sentences) == (100, 100, 0, 2)
    assert 0 < found.baseline_f1 < 60
    assert found.tagging_accuracy is None, "its leaves are no tags"
    tags = [line.replace("XX", "NN") for line in TREES]
    assert score_parses(craft("tags"), SENTENCES, tags, tags).tagging_accuracy == 100


def test_a_line_that_is_no_tree_is_repaired_and_counted() -> None:
    lines = [TREES[0], "(S (NP XX XX XX XX XX"]
    found = score_parses(CRAFT_SHORT, SENTENCES, TREES, lines)
    assert (found.repaired, found.errors) == (1, 0)
    assert 0 < found.f1 < 100
    parsed = parse_lines(CRAFT_SHORT, SENTENCES, lines)
    assert to_penn(parsed.trees[1]) == "(TOP (S (NP (XX It) (XX eats) (XX fish) (XX .))))"
