"""A batch laid end to end in one static shape.

It has the same pairs as the padded batch, without most of its padding; and since all batches have
one shape, a compiler builds one graph, and a GPU replays one.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from transformer.config import BOS_ID, PAD_ID
from transformer.data.batches import Batch
from transformer.model.packed import PackedTokens

Numbers = npt.NDArray[np.int64]

# The room that is left at the end is filled with sentences of at most this many tokens of padding,
# which cost next to nothing.
_FILLER = 64
_MULTIPLE = 8  # of the room, for products


@dataclass(kw_only=True, slots=True)
class PackedBatch:
    """A batch of pairs laid end to end.

    Attributes:
        tensors: what :func:`unpack` takes
        source_tokens, target_tokens, number, shard, shards: as in the padded batch
    """

    tensors: tuple[Tensor, ...]
    source_tokens: int
    target_tokens: int
    number: int = 0
    shard: int = 0
    shards: int = 1

    def to(self, device: torch.device | str, **_: Any) -> PackedBatch:
        """The batch on another device; the copy to a GPU is asynchronous."""
        if torch.device(device).type == "cuda" and self.tensors[0].device.type == "cpu":
            pinned = (tensor.pin_memory() for tensor in self.tensors)
            return replace(self, tensors=tuple(x.to(device, non_blocking=True) for x in pinned))
        return replace(self, tensors=tuple(tensor.to(device) for tensor in self.tensors))


def unpack(tensors: tuple[Tensor, ...], longest: int) -> tuple[PackedTokens, PackedTokens, Tensor]:
    """Sources, the decoder's input, and its targets ``(length,)``, of which padding is 0.

    Args:
        longest: the most tokens that a sentence may have
    """
    src, src_sentence, src_offsets, inputs, tgt_sentence, tgt_offsets, targets = tensors
    source = PackedTokens(src, src_sentence, src_offsets, longest)
    return source, PackedTokens(inputs, tgt_sentence, tgt_offsets, longest), targets


def room(tokens_per_batch: int) -> int:
    """Tokens of each side for which there is room in a packed batch.

    A batch has ``tokens_per_batch`` on its fuller side up to chance, as pairs of a bucket are drawn
    at random: the room is that and 5/3 of its square root, 25,264 for 25,000.
    """
    tokens = tokens_per_batch + 5 * math.sqrt(tokens_per_batch) / 3
    return math.ceil(tokens / _MULTIPLE) * _MULTIPLE


def pack(batch: Batch, size: int, longest: int) -> PackedBatch | None:
    """The pairs of a padded batch on the CPU in ``size`` tokens a side.

    Returns:
        None if there are more tokens, or a sentence has more than ``longest``
    """
    sides = batch.src.numpy(), batch.tgt[:, 1:].numpy()
    counts = [(side != PAD_ID).sum(axis=1) for side in sides]
    left = [size - int(lengths.sum()) for lengths in counts]
    if min(left) < 0 or max(int(lengths.max()) for lengths in counts) > longest:
        return None
    fillers = _fillers(left, min(_FILLER, longest))
    (src, *source), (targets, sentence, offsets) = (
        _lay_out(side, lengths, filler, size)
        for side, lengths, filler in zip(sides, counts, fillers, strict=True)
    )
    inputs = np.insert(targets[:-1], 0, BOS_ID)
    inputs[offsets[:-1][np.diff(offsets) > 0]] = BOS_ID
    arrays = src[None], *source, inputs[None], sentence, offsets, targets
    return PackedBatch(
        tensors=tuple(torch.from_numpy(array) for array in arrays),
        source_tokens=batch.source_tokens,
        target_tokens=batch.target_tokens,
        number=batch.number,
        shard=batch.shard,
        shards=batch.shards,
    )


def _fillers(left: list[int], most: int) -> list[Numbers]:
    """The lengths of as many sentences of padding for both sides, which fill what is left."""
    count = -(-max(left) // most)
    starts = np.arange(count) * most
    return [np.clip(each - starts, 0, most) for each in left]


def _lay_out(
    side: Numbers, lengths: Numbers, filler: Numbers, size: int
) -> tuple[Numbers, npt.NDArray[np.int32], npt.NDArray[np.int32]]:
    """The ids, each one's sentence, and where each sentence begins.

    There are as many offsets as there could be sentences, so that they have one shape.
    """
    ids = np.zeros(size, np.int64)
    ids[: lengths.sum()] = side[side != PAD_ID]
    lengths = np.concatenate([lengths, filler])
    offsets = np.full(size + 1, size, np.int32)
    offsets[: len(lengths) + 1] = np.insert(lengths.cumsum(), 0, 0)
    return ids, np.repeat(np.arange(len(lengths), dtype=np.int32), lengths), offsets
