"""The fast paths against the paper's formulas for all 20 rows of Table 3, in float64."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable, Sequence

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

from ablations.tables.scales import QUICK
from ablations.tables.table3 import TABLE
from tests.samples import random_sentences, random_targets, tiny
from transformer.config import PAD_ID, Config, override
from transformer.corpus import Corpus
from transformer.data.batches import Batch
from transformer.model.attention import MultiHeadAttention
from transformer.model.embeddings import sinusoids
from transformer.model.encoder_decoder import FeedForward, PostNorm, Transformer
from transformer.training.module import TransformerModule

# Without those that differ from the base only in dropout, which is left out here.
ROWS = {
    row.name: TABLE.configure(row, QUICK) for row in TABLE.rows if not row.name.startswith("D-p")
}
# A sentence of its end alone, odd and even lengths, and one beyond the learned positions.
SRC, TGT = [1, 7, 12], [5, 10, 2]


# The formulas for single sentences, with the weights of our model: without batches, padding, caches
# or masks other than the causal one, and with torch's loss.
def _attend(module: MultiHeadAttention, x: Tensor, memory: Tensor, *, causal: bool) -> Tensor:
    h, d_k, d_v = module.num_heads, module.d_k, module.d_v
    w_k, w_v = module.key_value.weight.split([h * d_k, h * d_v])
    heads: list[Tensor] = []
    for i in range(h):
        q = x @ module.query.weight[i * d_k : (i + 1) * d_k].T
        k, v = memory @ w_k[i * d_k : (i + 1) * d_k].T, memory @ w_v[i * d_v : (i + 1) * d_v].T
        scores = q @ k.T / math.sqrt(d_k)
        if causal:
            scores += torch.full_like(scores, -math.inf).triu(1)
        heads.append(scores.softmax(-1) @ v)
    return torch.cat(heads, dim=-1) @ module.output.weight.T


def _add_and_norm(post: PostNorm, x: Tensor, sublayer: Tensor) -> Tensor:
    return F.layer_norm(x + sublayer, x.shape[-1:], post.norm.weight, post.norm.bias)


def _feed_forward(module: FeedForward, x: Tensor) -> Tensor:
    inner = (x @ module.inner.weight.T + module.inner.bias).clamp(min=0)
    return inner @ module.outer.weight.T + module.outer.bias


def _embed(model: Transformer, tokens: Sequence[int]) -> Tensor:
    table = model.embedding.positions
    if table is None:
        positions = sinusoids(len(tokens), model.config.d_model).double()
    else:
        positions = table[[min(i, len(table) - 1) for i in range(len(tokens))]]
    return model.embedding.weight[list(tokens)] * math.sqrt(model.config.d_model) + positions


def plain_logits(model: Transformer, src: Sequence[int], tgt: Sequence[int]) -> Tensor:
    """Of the word-piece after each of ``tgt``, ``(tgt, vocab_size)``, without dropout."""
    memory = _embed(model, src)
    for layer in model.encoder:
        attended = _attend(layer.self_attention, memory, memory, causal=False)
        memory = _add_and_norm(layer.self_attention_norm, memory, attended)
        memory = _add_and_norm(
            layer.feed_forward_norm, memory, _feed_forward(layer.feed_forward, memory)
        )
    x = _embed(model, tgt)
    for layer in model.decoder:
        attended = _attend(layer.self_attention, x, x, causal=True)
        x = _add_and_norm(layer.self_attention_norm, x, attended)
        attended = _attend(layer.cross_attention, x, memory, causal=False)
        x = _add_and_norm(layer.cross_attention_norm, x, attended)
        forwarded = _feed_forward(layer.feed_forward, x)
        x = _add_and_norm(layer.feed_forward_norm, x, forwarded)
    return x @ model.embedding.weight[: model.config.vocab_size].T


def plain_loss(model: Transformer, batch: Batch, smoothing: float) -> Tensor:
    """Summed over the real targets of the batch."""
    total = torch.zeros((), dtype=torch.float64)
    for src_row, tgt_row in zip(batch.src.tolist(), batch.tgt.tolist(), strict=True):
        src, tgt = ([token for token in row if token != PAD_ID] for row in (src_row, tgt_row))
        logits = plain_logits(model, src, tgt[:-1])
        total += F.cross_entropy(
            logits, torch.tensor(tgt[1:]), label_smoothing=smoothing, reduction="sum"
        )
    return total


def config_of(name: str, corpus: Corpus) -> Config:
    """A row with a small vocabulary and without dropout."""
    config = dataclasses.replace(tiny(corpus), model=ROWS[name].model)
    smoothing = ROWS[name].training.label_smoothing
    return override(config, label_smoothing=smoothing, vocab_size=61, max_positions=9, dropout=0.0)


def lively(model: Transformer) -> Transformer:
    """The model with weights far from their initial values, so that every part matters."""
    torch.manual_seed(1)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(torch.randn_like(parameter), alpha=0.15)
    return model


@pytest.mark.parametrize("name", ROWS)
def test_loss_and_gradients_of_batches_and_of_halves(
    name: str, files_corpus: Corpus, set_threads: Callable[[int], None]
) -> None:
    config = config_of(name, files_corpus)
    module = TransformerModule(config).double()
    lively(module.model)
    src, tgt = random_sentences(SRC), random_targets(TGT)
    batch = Batch(src=src, tgt=tgt, source_tokens=sum(SRC), target_tokens=14)
    parameters = list(module.parameters())
    expected = plain_loss(module.model, batch, config.training.label_smoothing)
    gradients = torch.autograd.grad(expected, parameters)
    for threads in (1, 2):
        set_threads(threads)
        smoothed, _ = module.training_loss(batch)
        torch.testing.assert_close(smoothed, expected, rtol=1e-6, atol=1e-6)
        found = torch.autograd.grad(smoothed, parameters)
        torch.testing.assert_close(found, gradients, rtol=1e-5, atol=1e-5)
