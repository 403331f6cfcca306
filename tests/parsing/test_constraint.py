"""A search that is held to trees: against enumeration, and over any sentence and any model."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Sequence
from functools import partial

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from tests.decoding.test_search import LivelyEmbedding, lively_model
from tests.samples import TINY_MODEL
from transformer.config import BOS_ID, EOS_ID, PAD_ID, UNK_ID, DecodingConfig
from transformer.data.vocabulary import Vocabulary, train_vocabulary
from transformer.decoding.beams import length_penalty
from transformer.decoding.search import beam_search
from transformer.evaluation.perplexity import translate
from transformer.model.encoder_decoder import Transformer
from transformer.parsing.constraint import Spelling, TreeConstraint
from transformer.parsing.trees import (
    BRACKETS,
    MAX_OPEN,
    Leaves,
    delinearise,
    escape,
    read_trees,
    to_penn,
    words,
)

LINES = ["(S (NP a )NP (VP bed , )VP . )S XX", "a bad bead , ."]
SENTENCE = "a bed"
DEVICE = torch.device("cpu")


@pytest.fixture(scope="module")
def vocabulary(tmp_path_factory: pytest.TempPathFactory) -> Vocabulary:
    path = tmp_path_factory.mktemp("vocabulary") / "v.model"
    train_vocabulary(LINES, 29, path, whole=BRACKETS)
    return Vocabulary(path)


def of_size(vocabulary: Vocabulary, seed: int = 0) -> Transformer:
    config = dataclasses.replace(TINY_MODEL, vocab_size=len(vocabulary))
    return lively_model(config, seed=seed).float()


def forests(spelling: Spelling, leaves: Sequence[list[int]], brackets: int) -> Iterator[list[int]]:
    """All lines of one or more trees over ``leaves`` with at most that many pairs of brackets."""
    if not leaves:
        yield []
        return
    for rest in forests(spelling, leaves[1:], brackets):
        yield [*leaves[0], *rest]
    for end in range(1, len(leaves) + 1):
        for pairs in range(brackets):
            for inner in forests(spelling, leaves[:end], pairs):
                used = 1 + sum(x in spelling.opening for x in inner)
                for opening, closing in zip(spelling.opening, spelling.closing, strict=True):
                    for rest in forests(spelling, leaves[end:], brackets - used):
                        yield [opening, *inner, closing, *rest]


@torch.no_grad()
def score(
    model: Transformer, src: Tensor, line: list[int], spelling: Spelling, alpha: float
) -> float:
    """Log-probability over the length penalty; a leaf counts as any leaf, its rest as certain."""
    logits = model(src, torch.tensor([[BOS_ID, *line]]))[0]
    logits[:, [PAD_ID, BOS_ID]] = -torch.inf
    scores, brackets = logits.log_softmax(-1), {*spelling.opening, *spelling.closing}
    leaves = [x for x in range(4, scores.size(1)) if x not in brackets] + [UNK_ID]
    starts = {ids[0] for word in SENTENCE.split() for ids in spelling.leaf(word)}
    total = torch.zeros(())
    for step, piece in enumerate([*line, EOS_ID]):
        if piece in brackets or piece == EOS_ID:
            total += scores[step, piece]
        elif piece in starts:
            total += scores[step, leaves].logsumexp(0)
    return (total / length_penalty(len(line) + 1, alpha)).item()


@pytest.mark.slow
@pytest.mark.parametrize("alpha", [0.0, 1.0])
@pytest.mark.parametrize("seed", [0, 1])
def test_a_wide_search_finds_the_best_tree(vocabulary: Vocabulary, seed: int, alpha: float) -> None:
    spelling = Spelling(vocabulary, "words")
    model = of_size(vocabulary, seed)
    (source,) = vocabulary.encode([SENTENCE])
    src = torch.tensor([source])
    leaves = [spelling.leaf(word)[0] for word in SENTENCE.split()]
    extra = sum(map(len, leaves)) + 2 * 2 + 1 - len(source)
    lines = {tuple(x) for x in forests(spelling, leaves, 2)}
    assert len(lines) > 50
    best = max(lines, key=lambda line: score(model, src, list(line), spelling, alpha))
    config = DecodingConfig(beam_size=600, length_penalty=alpha, max_extra_length=extra)
    with torch.inference_mode():
        (found,) = beam_search(model, src, config, TreeConstraint(spelling, [SENTENCE], DEVICE))
    assert tuple(found) == best


WORDS = ["a", "bed", "a▁b", ",", ".", "XX", "?", "(", ")", "f(a)", "é", "éa", "abad", "-LRB-"]


@pytest.mark.slow
@settings(max_examples=40, deadline=None)
@given(
    sentences=st.lists(
        st.lists(st.sampled_from(WORDS), min_size=1, max_size=6).map(" ".join),
        min_size=1,
        max_size=5,
    ),
    leaves=st.sampled_from(["XX", "words"]),
    beam=st.integers(1, 5),
    extra=st.sampled_from([0, 1, 2, 5, 40]),
    seed=st.integers(0, 5),
)
def test_every_output_is_a_tree_over_its_sentence(
    vocabulary: Vocabulary, sentences: list[str], leaves: Leaves, beam: int, extra: int, seed: int
) -> None:
    model, spelling = of_size(vocabulary, seed), Spelling(vocabulary, leaves)
    config = DecodingConfig(beam_size=beam, max_extra_length=extra)
    constrain = partial(TreeConstraint, spelling, device=DEVICE)
    found = translate(model, vocabulary, list(map(escape, sentences)), config, constrain=constrain)
    for sentence, line in zip(sentences, found, strict=True):
        tree = delinearise(line, sentence.split())
        assert words(tree) == sentence.split()
        (again,) = read_trees(to_penn(tree), "written")
        assert to_penn(again) == to_penn(tree)


@pytest.mark.slow
def test_a_model_that_only_opens_brackets_stays_within_the_depth(vocabulary: Vocabulary) -> None:
    spelling = Spelling(vocabulary, "words")
    model = of_size(vocabulary)
    assert isinstance(model.embedding, LivelyEmbedding)
    with torch.no_grad():
        model.embedding.output.bias[spelling.opening] += 100.0
    config = DecodingConfig(beam_size=2, max_extra_length=500)
    constrain = partial(TreeConstraint, spelling, device=DEVICE)
    (line,) = translate(model, vocabulary, ["a"], config, constrain=constrain)
    assert line.count("(") == line.count(")") == MAX_OPEN
    delinearise(line, ["a"])
