"""The paper's formulas for single sentences, with the weights of our model.

Without batches, padding, caches or masks other than the causal one, and with torch's loss. The fast
paths must agree with it.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import torch
import torch.nn.functional as F
from torch import Tensor

from transformer.config import PAD_ID
from transformer.data.batches import Batch
from transformer.model.attention import MultiHeadAttention
from transformer.model.embeddings import sinusoids
from transformer.model.encoder_decoder import (
    DecoderLayer,
    EncoderLayer,
    FeedForward,
    PostNorm,
    Transformer,
)


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
        assert isinstance(layer, EncoderLayer)
        attended = _attend(layer.self_attention, memory, memory, causal=False)
        memory = _add_and_norm(layer.self_attention_norm, memory, attended)
        memory = _add_and_norm(
            layer.feed_forward_norm, memory, _feed_forward(layer.feed_forward, memory)
        )
    x = _embed(model, tgt)
    for layer in model.decoder:
        assert isinstance(layer, DecoderLayer)
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
