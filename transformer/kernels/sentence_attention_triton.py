"""Attention within sentences, in Triton for CUDA.

Plain form: ``attend`` and ``differentiate`` of :mod:`transformer.kernels.sentence_attention`.

A program owns some rows of one head, of the queries or of the keys, and walks over the rows of the
other side that belong to their sentences. It alone writes its own rows: nothing is added
atomically, so results repeat bit for bit. How many programs there are depends on the numbers of
tokens alone, so one CUDA graph serves all batches of a size.
"""
# Triton, which is not installed everywhere, compiles the text of the functions that it decorates.
# pyright: basic, reportMissingImports=false, reportIndexIssue=false, reportCallIssue=false
# pyright: reportArgumentType=false

from __future__ import annotations

import math
from typing import Any, NamedTuple

import torch
import triton
import triton.language as tl
from torch import Tensor

from transformer.kernels.sentences import Sentences


class Tile(NamedTuple):
    """Rows that a program owns, rows that it takes at a time on its walk, warps, loads in flight.

    Sentences are short, so small tiles waste least: most of a large one lies in other sentences.
    A warp group multiplies 64 rows at once in bf16; ``warps`` of 4 are one.
    """

    own: int
    other: int
    warps: int
    stages: int


# By dtype, and by the wider of d_k and d_v rounded up to a power of two.
TILES = {
    (torch.bfloat16, 16): Tile(64, 32, 4, 2),
    (torch.bfloat16, 32): Tile(64, 32, 4, 2),
    (torch.bfloat16, 64): Tile(64, 32, 4, 2),
    (torch.bfloat16, 128): Tile(64, 32, 4, 2),
    (torch.float32, 16): Tile(32, 32, 4, 2),
    (torch.float32, 32): Tile(32, 32, 8, 2),
    (torch.float32, 64): Tile(32, 32, 8, 2),
    (torch.float32, 128): Tile(32, 32, 8, 2),
}


@triton.jit
def _visible(rows, valid, sentences, offsets):
    """The first row of the other side that each row sees, and the end; arbitrary if not valid."""
    sentence = tl.load(sentences + rows, mask=valid, other=0)
    return tl.load(offsets + sentence), tl.load(offsets + sentence + 1)


@triton.jit
def _visible_to_all(start, length, sentences, offsets, OWN: tl.constexpr):
    """The first row of the other side that a program walks over, and the end.

    Read as two numbers: the extremes of :func:`_visible` would lie in registers of every thread,
    and with them all that a compiler derives from the bounds of a loop.
    """
    first = tl.load(sentences + start)
    last = tl.load(sentences + tl.minimum(start + OWN, length) - 1)
    return tl.load(offsets + first), tl.load(offsets + last + 1)


@triton.jit
def _places(matrix, rows, stride, head, WIDTH: tl.constexpr, PADDED: tl.constexpr):
    # 64 bits, as a matrix may have more elements than 32 can count.
    column = head * WIDTH + tl.arange(0, PADDED)
    return matrix + rows[:, None].to(tl.int64) * stride + column[None, :]


@triton.jit
def _load(matrix, rows, stride, head, valid, WIDTH: tl.constexpr, PADDED: tl.constexpr):
    """``(rows, PADDED)`` of one head; 0 in rows that are not valid and beyond ``WIDTH``."""
    real = valid[:, None] & (tl.arange(0, PADDED) < WIDTH)[None, :]
    return tl.load(_places(matrix, rows, stride, head, WIDTH, PADDED), mask=real, other=0.0)


@triton.jit
def _store(matrix, values, rows, stride, head, valid, WIDTH: tl.constexpr, PADDED: tl.constexpr):
    real = valid[:, None] & (tl.arange(0, PADDED) < WIDTH)[None, :]
    values = values.to(matrix.dtype.element_ty)
    tl.store(_places(matrix, rows, stride, head, WIDTH, PADDED), values, mask=real)


@triton.jit
def _product(a, b):
    """Summed in fp32; fp32 factors are not rounded to tf32."""
    return tl.dot(a, b, input_precision="ieee")


@triton.jit
def _attend(
    query, key, value, out, log_sums, query_sentences, key_offsets, queries,
    query_stride, key_stride, value_stride, out_stride, scale,
    CAUSAL: tl.constexpr, D_K: tl.constexpr, D_V: tl.constexpr,
    PADDED_K: tl.constexpr, PADDED_V: tl.constexpr, OWN: tl.constexpr, OTHER: tl.constexpr,
):  # fmt: skip
    """Owns queries and walks over keys.

    The softmax is taken online: whenever the largest score so far grows, the sums so far shrink in
    proportion (Milakov and Gimelshein 2018, Dao et al. 2022). The scores are scaled to powers of
    two, which a GPU has an instruction for.
    """
    start, head = tl.program_id(0) * OWN, tl.program_id(1)
    rows = start + tl.arange(0, OWN)
    valid = rows < queries
    begin, end = _visible(rows, valid, query_sentences, key_offsets)
    low, high = _visible_to_all(start, queries, query_sentences, key_offsets, OWN)
    if CAUSAL:
        end, high = tl.minimum(end, rows + 1), tl.minimum(high, start + OWN)
    q = _load(query, rows, query_stride, head, valid, D_K, PADDED_K)
    largest = tl.full([OWN], -float("inf"), tl.float32)
    total = tl.zeros([OWN], tl.float32)
    attended = tl.zeros([OWN, PADDED_V], tl.float32)
    for other in range(low, high, OTHER):
        columns = other + tl.arange(0, OTHER)
        there = columns < high
        k = _load(key, columns, key_stride, head, there, D_K, PADDED_K)
        v = _load(value, columns, value_stride, head, there, D_V, PADDED_V)
        seen = (columns[None, :] >= begin[:, None]) & (columns[None, :] < end[:, None])
        scores = tl.where(seen, _product(q, tl.trans(k)) * scale, -float("inf"))
        new_largest = tl.maximum(largest, tl.max(scores, 1))
        # A query that has seen no key yet has only -inf, and -inf - -inf is not a number.
        finite = tl.where(new_largest == -float("inf"), 0.0, new_largest)
        weights = tl.exp2(scores - finite[:, None])
        shrunk = tl.exp2(largest - finite)
        total = total * shrunk + tl.sum(weights, 1)
        attended = attended * shrunk[:, None] + _product(weights.to(v.dtype), v)
        largest = new_largest
    # A query without any key gets zeros; of an infinite sum, its weights are zeros in the backward
    # pass as well.
    alone = total == 0.0
    total = tl.where(alone, 1.0, total)
    _store(out, attended / total[:, None], rows, out_stride, head, valid, D_V, PADDED_V)
    log_sum = tl.where(alone, float("inf"), largest + tl.log2(total))
    tl.store(log_sums + head * queries + rows, log_sum, mask=valid)


@triton.jit
def _differentiate_query(
    query, key, value, out, gradient, log_sums, inner, query_gradient,
    query_sentences, key_offsets, queries,
    query_stride, key_stride, value_stride, out_stride, query_gradient_stride, scale, factor,
    CAUSAL: tl.constexpr, D_K: tl.constexpr, D_V: tl.constexpr,
    PADDED_K: tl.constexpr, PADDED_V: tl.constexpr, OWN: tl.constexpr, OTHER: tl.constexpr,
):  # fmt: skip
    """Owns queries and walks over keys, whose weights it computes again from ``log_sums``.

    A score's gradient is its weight times (gradient · value - gradient · out). The latter,
    ``inner``, is kept for :func:`_differentiate_key_value`.
    """
    start, head = tl.program_id(0) * OWN, tl.program_id(1)
    rows = start + tl.arange(0, OWN)
    valid = rows < queries
    begin, end = _visible(rows, valid, query_sentences, key_offsets)
    low, high = _visible_to_all(start, queries, query_sentences, key_offsets, OWN)
    if CAUSAL:
        end, high = tl.minimum(end, rows + 1), tl.minimum(high, start + OWN)
    q = _load(query, rows, query_stride, head, valid, D_K, PADDED_K)
    o = _load(out, rows, out_stride, head, valid, D_V, PADDED_V)
    g = _load(gradient, rows, out_stride, head, valid, D_V, PADDED_V)
    log_sum = tl.load(log_sums + head * queries + rows, mask=valid, other=float("inf"))
    own_inner = tl.sum(g.to(tl.float32) * o.to(tl.float32), 1)
    tl.store(inner + head * queries + rows, own_inner, mask=valid)
    total = tl.zeros([OWN, PADDED_K], tl.float32)
    for other in range(low, high, OTHER):
        columns = other + tl.arange(0, OTHER)
        there = columns < high
        k = _load(key, columns, key_stride, head, there, D_K, PADDED_K)
        v = _load(value, columns, value_stride, head, there, D_V, PADDED_V)
        seen = (columns[None, :] >= begin[:, None]) & (columns[None, :] < end[:, None])
        scores = _product(q, tl.trans(k)) * scale
        weights = tl.where(seen, tl.exp2(scores - log_sum[:, None]), 0.0)
        scores_gradient = weights * (_product(g, tl.trans(v)) - own_inner[:, None])
        total += _product(scores_gradient.to(k.dtype), k)
    total *= factor
    _store(query_gradient, total, rows, query_gradient_stride, head, valid, D_K, PADDED_K)


@triton.jit
def _differentiate_key_value(
    query, key, value, gradient, log_sums, inner, key_gradient, value_gradient,
    key_sentences, query_offsets, queries, keys,
    query_stride, key_stride, value_stride, out_stride, key_gradient_stride, value_gradient_stride,
    scale, factor,
    CAUSAL: tl.constexpr, D_K: tl.constexpr, D_V: tl.constexpr,
    PADDED_K: tl.constexpr, PADDED_V: tl.constexpr, OWN: tl.constexpr, OTHER: tl.constexpr,
):  # fmt: skip
    """Owns keys and walks over queries.

    Scores are keys by queries here, so that they are the left factor of both sums as they are: a
    tensor core reads its left factor from registers, where they have been computed.
    """
    start, head = tl.program_id(0) * OWN, tl.program_id(1)
    rows = start + tl.arange(0, OWN)
    valid = rows < keys
    begin, end = _visible(rows, valid, key_sentences, query_offsets)
    low, high = _visible_to_all(start, keys, key_sentences, query_offsets, OWN)
    if CAUSAL:
        begin, low = tl.maximum(begin, rows), tl.maximum(low, start)
    k = _load(key, rows, key_stride, head, valid, D_K, PADDED_K)
    v = _load(value, rows, value_stride, head, valid, D_V, PADDED_V)
    key_total = tl.zeros([OWN, PADDED_K], tl.float32)
    value_total = tl.zeros([OWN, PADDED_V], tl.float32)
    for other in range(low, high, OTHER):
        columns = other + tl.arange(0, OTHER)
        there = columns < high
        q = _load(query, columns, query_stride, head, there, D_K, PADDED_K)
        g = _load(gradient, columns, out_stride, head, there, D_V, PADDED_V)
        log_sum = tl.load(log_sums + head * queries + columns, mask=there, other=float("inf"))
        their_inner = tl.load(inner + head * queries + columns, mask=there, other=0.0)
        seen = (columns[None, :] >= begin[:, None]) & (columns[None, :] < end[:, None])
        scores = _product(k, tl.trans(q)) * scale
        weights = tl.where(seen, tl.exp2(scores - log_sum[None, :]), 0.0)
        value_total += _product(weights.to(g.dtype), g)
        scores_gradient = weights * (_product(v, tl.trans(g)) - their_inner[None, :])
        key_total += _product(scores_gradient.to(q.dtype), q)
    key_total *= factor
    _store(key_gradient, key_total, rows, key_gradient_stride, head, valid, D_K, PADDED_K)
    _store(value_gradient, value_total, rows, value_gradient_stride, head, valid, D_V, PADDED_V)


def attend(
    query: Tensor, key: Tensor, value: Tensor, sentences: Sentences
) -> tuple[Tensor, Tensor]:
    """The attended values and each query's log-sum, as the plain form."""
    queries, heads, d_k = query.shape
    query, key, value = _heads_side_by_side(query, key, value)
    out = query.new_empty(queries, heads, value.size(2))
    log_sums = query.new_empty(heads, queries, dtype=torch.float32)
    settings = _settings(query, value, sentences.causal)
    _attend[triton.cdiv(queries, settings["OWN"]), heads](
        query, key, value, out, log_sums, sentences.query_sentences, sentences.key_offsets, queries,
        query.stride(0), key.stride(0), value.stride(0), out.stride(0), _scale(d_k), **settings,
    )  # fmt: skip
    return out, log_sums


def differentiate(
    gradient: Tensor,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    out: Tensor,
    log_sums: Tensor,
    sentences: Sentences,
) -> tuple[Tensor, Tensor, Tensor]:
    """The gradients of query, key and value, as the plain form."""
    queries, heads, d_k = query.shape
    query, key, value = _heads_side_by_side(query, key, value)
    gradient = gradient.contiguous()  # as ``out`` is
    inner = torch.empty_like(log_sums)
    query_gradient = query.new_empty(query.shape)
    key_gradient, value_gradient = key.new_empty(key.shape), value.new_empty(value.shape)
    strides = [x.stride(0) for x in (query, key, value, out)]
    scales = (_scale(d_k), d_k**-0.5)
    settings = _settings(query, value, sentences.causal)
    _differentiate_query[triton.cdiv(queries, settings["OWN"]), heads](
        query, key, value, out, gradient, log_sums, inner, query_gradient,
        sentences.query_sentences, sentences.key_offsets, queries,
        *strides, query_gradient.stride(0), *scales, **settings,
    )  # fmt: skip
    _differentiate_key_value[triton.cdiv(len(key), settings["OWN"]), heads](
        query, key, value, gradient, log_sums, inner, key_gradient, value_gradient,
        sentences.key_sentences, sentences.query_offsets, queries, len(key),
        *strides, key_gradient.stride(0), value_gradient.stride(0), *scales, **settings,
    )  # fmt: skip
    return query_gradient, key_gradient, value_gradient


def _heads_side_by_side(*matrices: Tensor) -> list[Tensor]:
    """Lay each row's heads side by side, as a projection does; a row may be part of a wider one."""
    return [
        x if x.stride(2) == 1 and x.stride(1) == x.size(2) else x.contiguous() for x in matrices
    ]


def _scale(d_k: int) -> float:
    """e^(x / sqrt(d_k)) = 2^(x * scale)."""
    return d_k**-0.5 / math.log(2.0)


def _settings(query: Tensor, value: Tensor, causal: bool) -> dict[str, Any]:
    d_k, d_v = query.size(2), value.size(2)
    padded_k, padded_v = (max(16, triton.next_power_of_2(width)) for width in (d_k, d_v))
    tile = TILES[query.dtype, max(padded_k, padded_v)]
    return {
        "CAUSAL": causal,
        "D_K": d_k,
        "D_V": d_v,
        "PADDED_K": padded_k,
        "PADDED_V": padded_v,
        "OWN": tile.own,
        "OTHER": tile.other,
        "num_warps": tile.warps,
        "num_stages": tile.stages,
        "enable_fp_fusion": True,  # the default changes with Triton 3.10, and the bits with it
    }
