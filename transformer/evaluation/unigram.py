"""Perplexity of word-pieces that are predicted by their frequency alone."""

from __future__ import annotations

import math

import numpy as np

from transformer.data.store import EncodedPairs, Integers

_PAIRS = 100_000  # that are counted at a time: a large corpus does not fit in memory


def unigram_perplexity(train: EncodedPairs, valid: EncodedPairs, vocab_size: int) -> float:
    """Perplexity of the targets of ``valid`` under the frequencies of those of ``train``.

    Ends of sentences count, and the pairs of ``valid`` are those that are scored, as in
    :mod:`transformer.evaluation.perplexity`. One is added to each of the ``vocab_size`` counts
    (Laplace), as ``valid`` may have word-pieces that ``train`` has not.
    """
    counts = _count_targets(train, np.arange(len(train)), vocab_size) + 1
    scored = _count_targets(valid, valid.scored(), vocab_size)
    log_probabilities = np.log(counts / counts.sum())
    return math.exp(-float(scored @ log_probabilities) / int(scored.sum()))


def _count_targets(pairs: EncodedPairs, rows: Integers, vocab_size: int) -> Integers:
    counts = np.zeros(vocab_size, np.int64)
    for start in range(0, len(rows), _PAIRS):
        targets = pairs.joined(rows[start : start + _PAIRS], side=1)
        counts += np.bincount(targets, minlength=vocab_size)
    return counts
