"""Batches of similar lengths by tokens (section 5.1)."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import torch
from torch import Tensor

from transformer.config import BOS_ID, PAD_ID
from transformer.data.buckets import Buckets, Integers, shuffled
from transformer.data.store import EncodedPairs


@dataclass(kw_only=True, slots=True)
class Batch:
    """A batch of pairs, right-padded with 0.

    Attributes:
        src: ``(batch, src)``, each row ending with the end-of-sentence id
        tgt: ``(batch, 1 + tgt)``, likewise, each row beginning with the begin-of-sentence id
        source_tokens, target_tokens: real tokens of the whole step, over all devices; the end of a
            sentence counts, its begin does not
        number: of the batch, counted from the start of training
        shard: the number of this part among ``shards``, for devices and accumulation
        real_targets: ``(targets,)``, indices of ``tgt[:, 1:].flatten()`` that are not padding;
            computed on the CPU, because asking a GPU would stall it
    """

    src: Tensor
    tgt: Tensor
    source_tokens: int
    target_tokens: int
    number: int = 0
    shard: int = 0
    shards: int = 1
    real_targets: Tensor = field(default=None)  # pyright: ignore[reportAssignmentType]

    def __post_init__(self) -> None:
        if self.real_targets is None:  # pyright: ignore[reportUnnecessaryComparison]
            # numpy takes a tenth of torch's time.
            real = np.flatnonzero(self.tgt[:, 1:].numpy(force=True) != PAD_ID)
            self.real_targets = torch.from_numpy(real)

    def to(self, device: torch.device | str, **_: Any) -> Batch:
        """The batch on another device; the copy to a GPU is asynchronous."""
        to_gpu = torch.device(device).type == "cuda" and self.src.device.type == "cpu"
        names = ("src", "tgt", "real_targets")
        tensors: list[Tensor] = [getattr(self, name) for name in names]
        if to_gpu:
            tensors = [tensor.pin_memory() for tensor in tensors]
        moved = [tensor.to(device, non_blocking=to_gpu) for tensor in tensors]
        return replace(self, **dict(zip(names, moved, strict=True)))

    def halves(self) -> tuple[Batch, Batch]:
        """The shorter and the longer sentences, trimmed, with about as many word-pieces in both.

        The first half is a multiple of a sixteenth of the sentences, because matrix products of
        each new shape take extra time.
        """
        lengths = self.src.ne(PAD_ID).sum(1) + self.tgt.ne(PAD_ID).sum(1)
        lengths, order = lengths.sort(stable=True)
        total = lengths.cumsum(0)
        multiple = max(1, len(order) // 16)
        shorter = multiple * round(int((total <= total[-1] / 2).sum()) / multiple)
        shorter = min(max(multiple, shorter), len(order) - 1)
        first, second = (
            replace(self, src=_trim(self.src[rows]), tgt=_trim(self.tgt[rows]), real_targets=None)
            for rows in (order[:shorter], order[shorter:])
        )
        return first, second


def _trim(tokens: Tensor) -> Tensor:
    """Drop the columns that are all padding."""
    return tokens[:, : int(tokens.ne(PAD_ID).sum(1).max())]


class FixedBatches(list[Batch]):
    """The same batches at each iteration. Lightning would take a plain list for several loaders."""


class BatchPlan:
    """The pairs of each training batch: a function of lengths, seed and epoch alone.

    Each bucket is cut into batches at places that depend only on the lengths; which pairs of a
    bucket share a batch, and the order of the batches, are drawn again in each epoch. So all epochs
    have the same number of batches, and batch ``n`` is found without computing earlier ones. The
    fuller side of a batch has about ``tokens_per_batch`` real tokens.
    """

    def __init__(self, buckets: Buckets, tokens_per_batch: int, seed: int) -> None:
        self.seed = seed
        self._buckets = buckets
        self._ends = buckets.sizes.cumsum()
        self._cuts = buckets.cuts(tokens_per_batch)
        self._order: tuple[int, Integers] | None = None

    def __len__(self) -> int:
        """Batches per epoch."""
        return len(self._cuts) - 1

    def batch(self, number: int) -> Integers:
        """The pairs of batch ``number``, counted from the start of training."""
        epoch, index = divmod(number, len(self))
        cut = self._order_of(epoch)[index]
        places = np.arange(self._cuts[cut], self._cuts[cut + 1])
        # A batch may end one bucket and begin the next.
        buckets = np.searchsorted(self._ends, places, "right")
        drawn = [
            self._drawn(epoch, bucket, places[buckets == bucket])
            for bucket in np.unique(buckets).tolist()
        ]
        return np.concatenate(drawn)

    def _order_of(self, epoch: int) -> Integers:
        if self._order is None or self._order[0] != epoch:
            order = np.random.default_rng((self.seed, epoch)).permutation(len(self))
            self._order = (epoch, order)
        return self._order[1]

    def _drawn(self, epoch: int, bucket: int, places: Integers) -> Integers:
        size = int(self._buckets.sizes[bucket])
        start = int(self._ends[bucket]) - size
        moved = shuffled(places - start, size, (self.seed, epoch, bucket))
        return self._buckets.pairs[start + moved].astype(np.int64)


def collate(
    store: EncodedPairs, pairs: Integers, *, number: int = 0, shard: int = 0, shards: int = 1
) -> Batch:
    """One shard of a batch: every ``shards``-th pair from ``shard`` on.

    A shard without pairs gets the first pair with padding for targets, which has no loss, so that
    every rank takes part in every step.
    """
    lengths = store.lengths[pairs]
    mine = pairs[shard::shards] if shard < len(pairs) else pairs[:1]
    src, targets = store.padded(mine, 0), store.padded(mine, 1)
    if shard >= len(pairs):
        targets[:] = PAD_ID
    tgt = np.insert(targets, 0, BOS_ID, axis=1)
    source_tokens, target_tokens = lengths.sum(axis=0).tolist()
    return Batch(
        src=torch.from_numpy(src),
        tgt=torch.from_numpy(tgt),
        source_tokens=source_tokens,
        target_tokens=target_tokens,
        number=number,
        shard=shard,
        shards=shards,
    )
