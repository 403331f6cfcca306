"""Parses by a trained model: from its lines to trees, and how well they match references."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from experiments.run.results import Parses
from transformer.corpus import Corpus
from transformer.data.corpora.treebanks import leaves_of
from transformer.data.linearised import delinearise
from transformer.data.trees import Tree
from transformer.evaluation.parsing import (
    evaluate_parses,
    most_frequent_label,
    right_branching,
)


@dataclass(frozen=True, slots=True)
class ParsedLines:
    """Trees over the sentences that a model parsed, and how many of them had to be repaired."""

    trees: list[Tree]
    repaired: int


def parse_lines(corpus: Corpus, sentences: Sequence[str], lines: Sequence[str]) -> ParsedLines:
    """The trees that ``lines`` describe, by a model that was trained on ``corpus``."""
    leaves = leaves_of(corpus)
    found = [delinearise(x, y.split(), leaves) for x, y in zip(lines, sentences, strict=True)]
    return ParsedLines([tree for tree, _ in found], sum(repaired for _, repaired in found))


def score_parses(
    corpus: Corpus, sentences: Sequence[str], references: Sequence[str], lines: Sequence[str]
) -> Parses:
    """Score a model's ``lines`` for ``sentences`` against linearised ``references``.

    Punctuation gets the tags of the references, so that no sentence is left out of the score. The
    baseline is right-branching, with the most frequent label of the references.
    """
    gold = parse_lines(corpus, sentences, references).trees
    found = parse_lines(corpus, sentences, lines)
    scores = evaluate_parses(gold, found.trees, gold_punctuation=True)
    label = most_frequent_label(gold)
    trivial = [right_branching(sentence.split(), label) for sentence in sentences]
    baseline = evaluate_parses(gold, trivial, gold_punctuation=True)
    every = scores.all
    return Parses(
        precision=every.precision,
        recall=every.recall,
        f1=every.f1,
        f1_of_40=scores.up_to_40.f1,
        exact_match=every.exact_match,
        tagging_accuracy=every.tagging_accuracy if leaves_of(corpus) == "tags" else None,
        baseline_f1=baseline.all.f1,
        sentences=every.sentences,
        errors=every.errors,
        repaired=found.repaired,
    )
