"""The fast paths against the paper's formulas for all 20 rows of Table 3, in float64."""

from __future__ import annotations

import dataclasses
from functools import partial

import pytest
import torch
from torch import Tensor

from ablations.tables.scales import QUICK
from ablations.tables.table3 import TABLE
from tests.plain_search import Hypothesis, plain_beam_search
from tests.plain_transformer import plain_logits, plain_loss
from tests.samples import random_sentences, random_targets, tiny
from transformer.config import BOS_ID, PAD_ID, Config, DecodingConfig, override
from transformer.corpus import Corpus
from transformer.data.batches import Batch
from transformer.decoding import decode_sentences
from transformer.model.encoder_decoder import Transformer
from transformer.training.module import TransformerModule

ROWS = {row.name: QUICK.apply(TABLE.configure(row)) for row in TABLE.rows}
rows = pytest.mark.parametrize("name", ROWS)
# A sentence of its end alone, odd and even lengths, and one beyond the learned positions.
SRC, TGT = [1, 7, 12], [5, 10, 2]


def config_of(name: str, corpus: Corpus) -> Config:
    """A row with a small vocabulary and without dropout."""
    training = dataclasses.asdict(tiny(corpus).training) | {
        "label_smoothing": ROWS[name].training.label_smoothing
    }
    config = dataclasses.replace(tiny(corpus), model=ROWS[name].model)
    return override(config, **training, vocab_size=61, max_positions=9, dropout=0.0)


def lively(model: Transformer) -> Transformer:
    """The model with weights far from their initial values, so that every part matters."""
    torch.manual_seed(1)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(torch.randn_like(parameter), alpha=0.15)
    return model


def a_batch() -> Batch:
    src, tgt = random_sentences(SRC), random_targets(TGT)
    return Batch(src=src, tgt=tgt, source_tokens=sum(SRC), target_tokens=14)


@rows
def test_loss_and_gradients_of_batches_and_of_halves(name: str, files_corpus: Corpus) -> None:
    config = config_of(name, files_corpus)
    module = TransformerModule(config).double()
    lively(module.model)
    batch, parameters = a_batch(), list(module.parameters())
    expected = plain_loss(module.model, batch, config.training.label_smoothing)
    gradients = torch.autograd.grad(expected, parameters)
    for threads in (1, 2):
        torch.set_num_threads(threads)
        try:
            smoothed, _ = module.training_loss(batch)
        finally:
            torch.set_num_threads(1)
        torch.testing.assert_close(smoothed, expected, rtol=1e-6, atol=1e-6)
        found = torch.autograd.grad(smoothed, parameters)
        for one, other in zip(found, gradients, strict=True):
            torch.testing.assert_close(one, other, rtol=1e-5, atol=1e-5)


@rows
def test_logits_do_not_depend_on_the_rest_of_the_batch(name: str, files_corpus: Corpus) -> None:
    model = lively(Transformer(config_of(name, files_corpus).model)).double().eval()
    batch = a_batch()
    with torch.no_grad():
        logits = model(batch.src, batch.tgt)
        for row, (src, tgt) in enumerate(zip(SRC, TGT, strict=True)):
            expected = plain_logits(
                model, batch.src[row, :src].tolist(), batch.tgt[row, :tgt].tolist()
            )
            torch.testing.assert_close(logits[row, :tgt], expected, rtol=1e-6, atol=1e-6)


@rows
def test_beam_search_with_plain_logits(name: str, files_corpus: Corpus) -> None:
    model = lively(Transformer(config_of(name, files_corpus).model)).double().eval()
    decoding = DecodingConfig(beam_size=3, max_extra_length=2)
    sources = [random_sentences([length])[0].tolist() for length in (1, 4)]

    def following(src: list[int], prefixes: list[Hypothesis]) -> Tensor:
        logits = torch.stack([plain_logits(model, src, [BOS_ID, *p])[-1] for p in prefixes])
        logits[:, [PAD_ID, BOS_ID]] = -torch.inf
        return logits.log_softmax(-1)

    with torch.no_grad():
        expected = [
            list(plain_beam_search(partial(following, src), decoding, limit=len(src) + 2))
            for src in sources
        ]
    found = dict(decode_sentences(model, sources, decoding))
    assert [found[row] for row in range(len(sources))] == expected
