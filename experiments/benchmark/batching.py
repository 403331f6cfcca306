"""Batching: our planned batches, and a DataLoader over shuffled pairs of the same store."""

from __future__ import annotations

import tempfile
from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import torch
from torch import Tensor
from torch.nn.utils.rnn import pad_sequence
from torch.utils.data import DataLoader, Dataset

from experiments.benchmark.timing import Ratio, Row, in_turn, ratio_of
from experiments.benchmark.workload import workload
from transformer.config import PAD_ID
from transformer.data.batches import BatchPlan, collate
from transformer.data.buckets import Buckets
from transformer.data.store import TokenStore, write_store


@dataclass(frozen=True, kw_only=True, slots=True)
class DataSpeed:
    """Pairs per second made into batches, including the planning of the epoch.

    ``fill`` is the share of positions that hold real tokens. The plain loader works in this process
    and takes a fixed number of shuffled pairs per batch, so that batches hold as many tokens on
    average.
    """

    rounds: int
    pairs: int
    tokens_per_batch: int
    pairs_per_second: float
    plain_pairs_per_second: float
    seconds_per_batch: float
    fill: float
    plain_fill: float
    ratio: Ratio

    def rows(self) -> list[Row]:
        """What is printed."""
        ours, plain = self.pairs_per_second, self.plain_pairs_per_second
        return [
            ("data: pairs/s", f"{ours:,.0f}", f"{plain:,.0f}", str(self.ratio)),
            ("  fill of the batches", f"{self.fill:.1%}", f"{self.plain_fill:.1%}"),
            ("  ms a batch", f"{1e3 * self.seconds_per_batch:.2f}"),
        ]


def measure_data(device: torch.device, rounds: int) -> DataSpeed:
    """Make all batches of an epoch in both ways, ``rounds`` times."""
    load = workload(device)
    pairs = load.pairs()
    number = len(pairs.lengths)
    with tempfile.TemporaryDirectory() as folder:
        write_store(
            Path(folder),
            ((s.tolist(), t.tolist()) for s, t in (pairs[pair] for pair in range(number))),
            load.vocab_size,
        )
        store = TokenStore(Path(folder))
        plan = BatchPlan(Buckets.of(store.lengths), load.tokens_per_batch, seed=1)
        per_batch = max(1, int(load.tokens_per_batch / store.lengths.mean(axis=0).max()))
        times, plain_times = in_turn(
            range(rounds),
            lambda epoch: deque(_batches(store, plan, epoch), maxlen=0),
            lambda epoch: deque(_plain_batches(store, per_batch, epoch), maxlen=0),
            device=torch.device("cpu"),
        )
        fill = _fill(_batches(store, plan, 0))
        plain_fill = _fill(_plain_batches(store, per_batch, 0))
    return DataSpeed(
        rounds=rounds,
        pairs=number,
        tokens_per_batch=load.tokens_per_batch,
        pairs_per_second=rounds * number / sum(times),
        plain_pairs_per_second=rounds * number / sum(plain_times),
        seconds_per_batch=sum(times) / (rounds * len(plan)),
        fill=fill,
        plain_fill=plain_fill,
        ratio=ratio_of(plain_times, times),
    )


Sides = tuple[Tensor, Tensor]


def _batches(store: TokenStore, plan: BatchPlan, epoch: int) -> Iterator[Sides]:
    for pairs in plan.epoch(epoch):
        batch = collate(store, pairs)
        yield batch.src, batch.tgt[:, 1:]


def _plain_batches(store: TokenStore, size: int, seed: int) -> Iterator[Sides]:
    def pad(pairs: list[Sides]) -> Sides:
        src, tgt = (pad_sequence(list(side), batch_first=True) for side in zip(*pairs, strict=True))
        return src, tgt

    torch.manual_seed(seed)
    yield from DataLoader(_PlainPairs(store), batch_size=size, shuffle=True, collate_fn=pad)


class _PlainPairs(Dataset[Sides]):
    def __init__(self, store: TokenStore) -> None:
        self._store = store

    def __len__(self) -> int:
        return len(self._store)

    def __getitem__(self, index: int) -> Sides:
        source, target = self._store[index]
        return torch.from_numpy(source.astype("int64")), torch.from_numpy(target.astype("int64"))


def _fill(batches: Iterator[Sides]) -> float:
    sides = [side for batch in batches for side in batch]
    return sum(int(s.ne(PAD_ID).sum()) for s in sides) / sum(s.numel() for s in sides)
