"""Attention within the sentences of a stream.

Plain form: ``F.scaled_dot_product_attention`` of each sentence by itself.
"""

from __future__ import annotations

import importlib.util
import math
from typing import Any

import torch
from torch import Tensor

from transformer.kernels.sentences import Sentences

_WIDEST = 128  # wider heads would not fit into the memory of one GPU program


def can_serve(device: torch.device, d_k: int, d_v: int) -> bool:
    """Whether :func:`sentence_attention` runs on this device with heads of these widths."""
    if device.type != "cuda":
        return True
    return max(d_k, d_v) <= _WIDEST and importlib.util.find_spec("triton") is not None


def sentence_attention(query: Tensor, key: Tensor, value: Tensor, sentences: Sentences) -> Tensor:
    """softmax(QK^T / sqrt(d_k)) V within each sentence.

    On a GPU, results and gradients repeat bit for bit, and no matrix of weights is stored.

    Args:
        query: ``(1, num_heads, queries, d_k)``
        key: ``(1, num_heads, keys, d_k)``
        value: ``(1, num_heads, keys, d_v)``
        sentences: which queries attend to which keys

    Returns:
        ``(1, num_heads, queries, d_v)``; under autocast in its precision, like torch's attention

    Raises:
        TypeError: if the three have different dtypes and there is no autocast
    """
    device = query.device.type
    if torch.is_autocast_enabled(device) and query.dtype != torch.float64:
        dtype = torch.get_autocast_dtype(device)
        query, key, value = query.to(dtype), key.to(dtype), value.to(dtype)
    if not query.dtype == key.dtype == value.dtype:
        raise TypeError(f"attention from {query.dtype} to {key.dtype} and {value.dtype}")
    # The gradient of squeeze is a view; that of an index would be a copy.
    by_token = (x.squeeze(0).transpose(0, 1) for x in (query, key, value))
    out, _ = _attention(*by_token, *sentences)
    return out.transpose(0, 1).unsqueeze(0)


# A compiler does not look inside these two.
@torch.library.custom_op("transformer::sentence_attention", mutates_args=())
def _attention(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    query_sentences: Tensor,
    key_sentences: Tensor,
    query_offsets: Tensor,
    key_offsets: Tensor,
    causal: bool,
) -> tuple[Tensor, Tensor]:
    sentences = Sentences(query_sentences, key_sentences, query_offsets, key_offsets, causal)
    if query.is_cuda:
        from transformer.kernels import sentence_attention_triton

        with torch.cuda.device(query.device):  # on which Triton launches
            return sentence_attention_triton.attend(query, key, value, sentences)
    return attend(query, key, value, sentences)


@_attention.register_fake
def _(query: Tensor, key: Tensor, value: Tensor, *sentences: Any) -> tuple[Tensor, Tensor]:
    queries, heads, _ = query.shape
    log_sums = query.new_empty(
        heads, queries, dtype=torch.promote_types(query.dtype, torch.float32)
    )
    return query.new_empty(queries, heads, value.size(2)), log_sums


@torch.library.custom_op("transformer::sentence_attention_gradient", mutates_args=())
def _attention_gradient(
    gradient: Tensor,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    out: Tensor,
    log_sums: Tensor,
    query_sentences: Tensor,
    key_sentences: Tensor,
    query_offsets: Tensor,
    key_offsets: Tensor,
    causal: bool,
) -> tuple[Tensor, Tensor, Tensor]:
    sentences = Sentences(query_sentences, key_sentences, query_offsets, key_offsets, causal)
    if query.is_cuda:
        from transformer.kernels import sentence_attention_triton

        with torch.cuda.device(query.device):
            return sentence_attention_triton.differentiate(
                gradient, query, key, value, out, log_sums, sentences
            )
    return differentiate(gradient, query, key, value, out, log_sums, sentences)


@_attention_gradient.register_fake
def _(
    gradient: Tensor, query: Tensor, key: Tensor, value: Tensor, *rest: Any
) -> tuple[Tensor, Tensor, Tensor]:
    return query.new_empty(query.shape), key.new_empty(key.shape), value.new_empty(value.shape)


def _keep(ctx: Any, inputs: tuple[Any, ...], output: tuple[Tensor, Tensor]) -> None:
    *tensors, ctx.causal = inputs
    ctx.save_for_backward(*tensors[:3], *output, *tensors[3:])
    ctx.mark_non_differentiable(output[1])


def _backward(ctx: Any, *grad_outputs: Any) -> tuple[Tensor | None, ...]:
    found = _attention_gradient(grad_outputs[0], *ctx.saved_tensors, ctx.causal)
    return *found, None, None, None, None, None


_attention.register_autograd(_backward, setup_context=_keep)


def attend(
    query: Tensor, key: Tensor, value: Tensor, sentences: Sentences
) -> tuple[Tensor, Tensor]:
    """Attend by plain matrix products.

    Args:
        query: ``(queries, num_heads, d_k)``
        key: ``(keys, num_heads, d_k)``
        value: ``(keys, num_heads, d_v)``
        sentences: which queries attend to which keys

    Returns:
        ``(queries, num_heads, d_v)``, and log2 of each query's sum of 2^score, ``(num_heads,
        queries)``, at least in fp32. A query without keys has inf there, so its weights are 0
    """
    with torch.autocast(query.device.type, enabled=False):
        scores = _scores(query, key, sentences)
        log_sums = (scores * math.log(2.0)).logsumexp(-1) / math.log(2.0)
        log_sums = log_sums.masked_fill(log_sums == -torch.inf, torch.inf)
        weights = (scores - log_sums.unsqueeze(-1)).exp2()
        out = torch.einsum("hqk,khd->qhd", weights, value.to(weights.dtype))
    return out.to(value.dtype).contiguous(), log_sums


def differentiate(
    gradient: Tensor,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    out: Tensor,
    log_sums: Tensor,
    sentences: Sentences,
) -> tuple[Tensor, Tensor, Tensor]:
    """The gradients of query, key and value, given that of ``out``; shapes as in :func:`attend`."""
    with torch.autocast(query.device.type, enabled=False):
        weights = (_scores(query, key, sentences) - log_sums.unsqueeze(-1)).exp2()
        q, k, v, g, o = (x.to(weights.dtype) for x in (query, key, value, gradient, out))
        inner = torch.einsum("qhd,qhd->hq", g, o)
        scores_gradient = weights * (torch.einsum("qhd,khd->hqk", g, v) - inner.unsqueeze(-1))
        scores_gradient *= q.size(-1) ** -0.5
        return (
            torch.einsum("hqk,khd->qhd", scores_gradient, k).to(query.dtype).contiguous(),
            torch.einsum("hqk,qhd->khd", scores_gradient, q).to(key.dtype).contiguous(),
            torch.einsum("hqk,qhd->khd", weights, g).to(value.dtype).contiguous(),
        )


def _scores(query: Tensor, key: Tensor, sentences: Sentences) -> Tensor:
    """``(num_heads, queries, keys)``, of powers of two; -inf where a query does not attend."""
    wide = torch.promote_types(query.dtype, torch.float32)
    scaled = query.to(wide) * (query.size(-1) ** -0.5 / math.log(2.0))
    seen = sentences.query_sentences.unsqueeze(1) == sentences.key_sentences
    if sentences.causal:
        seen = seen.tril()
    return torch.einsum("qhd,khd->hqk", scaled, key.to(wide)).masked_fill(~seen, -torch.inf)
