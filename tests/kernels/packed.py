"""Queries, keys and values of sentences end to end."""

from __future__ import annotations

import torch
from torch import Tensor

from transformer.kernels.sentences import Sentences

HEADS = 3
# Two sentences without keys and one without queries.
QUERIES = [5, 0, 17, 1, 3, 29, 2]
KEYS = [7, 4, 0, 2, 13, 23, 0]


def offsets(lengths: list[int]) -> Tensor:
    return torch.tensor([0, *lengths]).cumsum(0).int()


def sentences_of(queries: list[int], keys: list[int], causal: bool) -> Sentences:
    def numbers(lengths: list[int]) -> Tensor:
        return torch.arange(len(lengths)).repeat_interleave(torch.tensor(lengths)).int()

    return Sentences(numbers(queries), numbers(keys), offsets(queries), offsets(keys), causal)


def random_heads(
    queries: int, keys: int, d_k: int, d_v: int, dtype: torch.dtype
) -> tuple[Tensor, Tensor, Tensor]:
    """As the projections write them: ``(1, heads, tokens, width)``, keys and values in one row."""

    def split(joined: Tensor, width: int) -> Tensor:
        return joined.unflatten(-1, (HEADS, width)).transpose(1, 2)

    query = torch.randn(1, queries, HEADS * d_k, dtype=dtype)
    key, value = torch.randn(1, keys, HEADS * (d_k + d_v), dtype=dtype).split(
        [HEADS * d_k, HEADS * d_v], -1
    )
    return split(query, d_k), split(key, d_k), split(value, d_v)
