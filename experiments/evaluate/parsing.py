"""Parse with a trained model, and score the trees."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import torch

from experiments.records.result import Parses
from transformer.corpus import Corpus
from transformer.data.corpora.treebanks import leaves_of
from transformer.data.trees import Tree, delinearise
from transformer.data.vocabulary import Vocabulary
from transformer.decoding import Constraint
from transformer.evaluation.parsing import (
    evaluate_parses,
    most_frequent_label,
    right_branching,
)
from transformer.evaluation.tree_constraint import Spelling, TreeConstraint


def constrain_to_trees(
    corpus: Corpus, vocabulary: Vocabulary, device: torch.device
) -> Callable[[Sequence[str]], Constraint]:
    """What a model that was trained on ``corpus`` may write for some sentences."""
    spelling = Spelling(vocabulary, leaves_of(corpus))
    return lambda sentences: TreeConstraint(spelling, sentences, device)


def parse_lines(sentences: Sequence[str], lines: Sequence[str]) -> list[Tree]:
    """The trees over the sentences that ``lines`` describe."""
    return [delinearise(x, y.split()) for x, y in zip(lines, sentences, strict=True)]


def score_parses(
    sentences: Sequence[str], references: Sequence[str], lines: Sequence[str]
) -> Parses:
    """Score a model's ``lines`` for ``sentences`` against linearised ``references``.

    Punctuation gets the tags of the references, so that no sentence is left out of the score. The
    baseline is right-branching, with the most frequent label of the references.
    """
    gold = parse_lines(sentences, references)
    found = parse_lines(sentences, lines)
    scores = evaluate_parses(gold, found, gold_punctuation=True)
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
        baseline_f1=baseline.all.f1,
        sentences=every.sentences,
        errors=every.errors,
    )
