"""Perplexity of models and of frequencies by hand, and translation line by line."""

from __future__ import annotations

import math

import pytest
import torch

from tests.samples import TINY_MODEL, number_pairs
from transformer.config import BOS_ID, DecodingConfig
from transformer.data.store import MAX_PIECES, EncodedPairs
from transformer.data.vocabulary import Vocabulary
from transformer.errors import InputError
from transformer.evaluation import perplexity as perplexity_module
from transformer.evaluation.perplexity import perplexity, translate, unigram_perplexity
from transformer.kernels.dropout import Dropout
from transformer.model.encoder_decoder import Transformer
from transformer.variants.modern import UntiedTransformer

PAIRS = number_pairs(29, seed=7)
SOURCES, REFERENCES = [s for s, _ in PAIRS], [t for _, t in PAIRS]


@pytest.fixture
def model() -> Transformer:
    return Transformer(TINY_MODEL).eval()


@torch.no_grad()
def nll_by_hand(model: Transformer, vocabulary: Vocabulary) -> tuple[float, int]:
    nll, tokens = 0.0, 0
    sources, references = vocabulary.encode(SOURCES), vocabulary.encode(REFERENCES)
    for source, target in zip(sources, references, strict=True):
        logits = model(torch.tensor([source]), torch.tensor([[BOS_ID, *target[:-1]]]))
        chosen = logits[0].log_softmax(-1)[range(len(target)), target]
        nll -= chosen.sum().item()
        tokens += len(target)
    return nll, tokens


@pytest.mark.parametrize("kind", [Transformer, UntiedTransformer])
@pytest.mark.parametrize("tokens_per_batch", [29, 4_096])
def test_perplexity_by_hand(
    tokens_per_batch: int, kind: type[Transformer], vocabulary: Vocabulary
) -> None:
    model = kind(TINY_MODEL).eval()
    nll, tokens = nll_by_hand(model, vocabulary)
    found = perplexity(model, vocabulary, SOURCES, REFERENCES, tokens_per_batch=tokens_per_batch)
    characters = sum(map(len, REFERENCES)) + len(REFERENCES)
    assert math.isclose(found.per_token, math.exp(nll / tokens), rel_tol=1e-5)
    assert math.isclose(found.per_char, math.exp(nll / characters), rel_tol=1e-5)
    for layer in model.modules():  # which perplexity turns off
        if isinstance(layer, Dropout):
            layer.p = 0.5
    model.train().encoder[0].eval()
    modes = [part.training for part in model.modules()]
    again = perplexity(model, vocabulary, SOURCES, REFERENCES, tokens_per_batch=tokens_per_batch)
    assert again == found
    translate(model, vocabulary, SOURCES[:2], DecodingConfig(max_extra_length=1))
    assert [part.training for part in model.modules()] == modes  # as in a callback of a training
    with torch.no_grad():
        model.output.weight.mul_(1e6)
    assert perplexity(model, vocabulary, SOURCES, REFERENCES).per_token == math.inf


@pytest.mark.slow
@pytest.mark.parametrize("beam_size", [1, 3])
def test_each_line_is_translated_in_its_place_and_an_empty_one_stays_empty(
    beam_size: int, model: Transformer, vocabulary: Vocabulary
) -> None:
    config = DecodingConfig(beam_size=beam_size, max_extra_length=5)
    lines = ["", *SOURCES[:7], "  ", *SOURCES[7:], "\t"]
    alone = [translate(model, vocabulary, [line], config)[0] for line in lines]
    assert translate(model, vocabulary, lines, config) == alone
    assert [bool(line) for line in alone] == [bool(line.strip()) for line in lines]
    assert len(set(alone)) > 9
    assert translate(model, vocabulary, [], config) == []


def test_too_long_pairs_are_left_out_and_named(model: Transformer, vocabulary: Vocabulary) -> None:
    expected = perplexity(model, vocabulary, SOURCES, REFERENCES)
    endless = "one " * 3_000
    with pytest.warns(UserWarning, match=rf"line {len(SOURCES) + 1} has .* left out of the perp"):
        found = perplexity(model, vocabulary, [*SOURCES, endless], [*REFERENCES, "one"])
    assert found == expected
    with pytest.warns(UserWarning), pytest.raises(InputError, match="none that is short enough"):
        perplexity(model, vocabulary, ["one"], [endless])
    with pytest.raises(InputError, match=r"^there is no perplexity: no line, or"):
        perplexity(model, vocabulary, [], [])
    with pytest.raises(InputError, match=r"^1 sources have 2 references"):
        perplexity(model, vocabulary, ["one"], ["a", "b"])


TRAIN = [([4, 4, 4, 3], [5, 6, 3]), ([7, 3], [5, 3]), ([8, 3], [5, 5, 7, 3])]


@pytest.mark.parametrize("at_a_time", [1, 2, 100])
def test_frequencies_are_those_of_training_targets_and_one_more(
    at_a_time: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(perplexity_module, "_PAIRS_AT_ONCE", at_a_time)
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
