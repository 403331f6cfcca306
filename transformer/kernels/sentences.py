"""Sentences laid end to end, as attention takes them."""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor


class Sentences(NamedTuple):
    """Which queries attend to which keys, in place of an additive mask.

    The queries are those of all sentences end to end, and so are the keys. A query attends to the
    keys of its own sentence; if that has none, it gets zeros.

    Attributes:
        query_sentences: ``(queries,)`` in int32, the sentence of each, ascending; padding at the
            end belongs to sentences of its own
        key_sentences: ``(keys,)``
        query_offsets: ``(sentences + 1,)`` in int32; the queries of a sentence are those from
            ``query_offsets[sentence]`` up to ``query_offsets[sentence + 1]``
        key_offsets: the same for the keys
        causal: whether a query attends to no key after its own place, queries and keys being the
            same tokens
    """

    query_sentences: Tensor
    key_sentences: Tensor
    query_offsets: Tensor
    key_offsets: Tensor
    causal: bool

    @property
    def query_positions(self) -> Tensor:
        """The position of each query in its sentence, ``(queries,)``."""
        return positions(self.query_sentences, self.query_offsets)

    @property
    def key_positions(self) -> Tensor:
        """The position of each key in its sentence, ``(keys,)``."""
        return positions(self.key_sentences, self.key_offsets)


def positions(sentences: Tensor, offsets: Tensor) -> Tensor:
    """The position of each token in its sentence, by the sentences' numbers and beginnings."""
    places = torch.arange(len(sentences), device=sentences.device, dtype=offsets.dtype)
    return places - offsets[sentences]
