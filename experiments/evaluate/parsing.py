"""Parse with a trained model, and score the trees."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import compress

import torch

from experiments.records.result import Parses
from transformer.corpus import Corpus
from transformer.data.corpora.treebanks import leaves_of
from transformer.data.trees import Tree, delinearise, words
from transformer.data.vocabulary import Vocabulary
from transformer.decoding import Constraint
from transformer.evaluation.parsing import (
    evaluate_parses,
    most_frequent_label,
    right_branching,
)
from transformer.evaluation.tree_constraint import Spelling, TreeConstraint

# EVALB's second list of figures is of sentences up to this length.
_CUT_OFF = 40


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

    The baseline is right-branching, with the most frequent label of the references.
    """
    gold = parse_lines(sentences, references)
    found = parse_lines(sentences, lines)
    every = evaluate_parses(gold, found)
    is_short = [len(words(tree)) <= _CUT_OFF for tree in gold]
    short = evaluate_parses(*(list(compress(trees, is_short)) for trees in (gold, found)))
    label = most_frequent_label(gold)
    trivial = [right_branching(sentence.split(), label) for sentence in sentences]
    return Parses(
        precision=every.precision,
        recall=every.recall,
        f1=every.f1,
        f1_of_40=short.f1,
        exact_match=every.exact_match,
        baseline_f1=evaluate_parses(gold, trivial).f1,
        sentences=every.sentences,
        errors=0,
    )
