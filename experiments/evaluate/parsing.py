"""Parses of a trained model: from its lines to trees, and how well they match the references."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import IO

from experiments.run.results import Parses
from transformer.corpus import Corpus
from transformer.data.corpora.treebanks import leaves_of
from transformer.data.linearised import WORD, delinearise
from transformer.data.text import decode_line
from transformer.data.trees import Tree, escape, to_penn
from transformer.errors import InputError
from transformer.evaluation.parsing import evaluate_parses, right_branching

# Sentences of standard input that are parsed at a time.
_SENTENCES_AT_ONCE = 128


def score_parses(
    corpus: Corpus, sentences: Sequence[str], references: Sequence[str], lines: Sequence[str]
) -> Parses:
    """Score a model's ``lines`` for ``sentences`` against the linearised ``references``.

    Punctuation has the tags of the references, so that no sentence is left out of the score.
    """
    leaves = leaves_of(corpus)
    words = [sentence.split() for sentence in sentences]
    gold = [delinearise(line, each, leaves)[0] for line, each in zip(references, words, strict=True)]
    found = [delinearise(line, each, leaves) for line, each in zip(lines, words, strict=True)]
    scores = evaluate_parses(gold, [tree for tree, _ in found], gold_punctuation=True)
    label = _commonest_label(gold)
    trivial = [right_branching(each, label) for each in words]
    baseline = evaluate_parses(gold, trivial, gold_punctuation=True)
    every = scores.all
    return Parses(
        precision=every.precision,
        recall=every.recall,
        f1=every.f1,
        f1_of_40=scores.up_to_40.f1,
        exact_match=every.exact_match,
        tagging_accuracy=every.tagging_accuracy if leaves == "tags" else None,
        baseline_f1=baseline.all.f1,
        sentences=every.sentences,
        errors=every.errors,
        repaired=sum(repaired for _, repaired in found),
    )


def _commonest_label(trees: Sequence[Tree]) -> str:
    counts = Counter(label for tree in trees for label in _labels(tree))
    return counts.most_common(1)[0][0] if counts else "NP"


def _labels(tree: Tree) -> Iterator[str]:
    for child in tree.children:
        if child.word is None:
            yield child.label
            yield from _labels(child)


__all__ = ["score_parses", "WORD", "IO", "Path", "decode_line", "escape", "to_penn", "InputError"]
