"""The perplexity of word-pieces by their frequency, by hand."""

from __future__ import annotations

import math

import pytest

from transformer.data.store import MAX_PIECES, EncodedPairs
from transformer.evaluation import unigram
from transformer.evaluation.unigram import unigram_perplexity

TRAIN = [([4, 4, 4, 3], [5, 6, 3]), ([7, 3], [5, 3]), ([8, 3], [5, 5, 7, 3])]


@pytest.mark.parametrize("at_a_time", [1, 2, 100])
def test_frequencies_are_those_of_training_targets_and_one_more(
    at_a_time: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(unigram, "_PAIRS", at_a_time)
    train = EncodedPairs.of(TRAIN)
    valid = EncodedPairs.of([([9, 3], [5, 10, 3]), ([4, 3], [6, 3])])
    # Of 11 word-pieces the targets have 5 four times, 3 three times, 6 and 7 once: 9 and 11 more.
    chances = [5 / 20, 1 / 20, 4 / 20, 2 / 20, 4 / 20]
    expected = math.prod(chances) ** (-1 / len(chances))
    assert unigram_perplexity(train, valid, 11) == pytest.approx(expected)


def test_pairs_that_are_not_scored_do_not_count() -> None:
    train, pair = EncodedPairs.of(TRAIN), ([4, 3], [6, 3])
    overlong = [([4, 3], [5] * MAX_PIECES + [3]), ([4] * MAX_PIECES + [3], [5, 3])]
    expected = unigram_perplexity(train, EncodedPairs.of([pair]), 11)
    assert unigram_perplexity(train, EncodedPairs.of([*overlong, pair]), 11) == expected


def test_a_uniform_corpus_has_the_perplexity_of_its_vocabulary() -> None:
    pairs = EncodedPairs.of([([3], list(range(13)))])
    assert unigram_perplexity(pairs, pairs, 13) == pytest.approx(13)
