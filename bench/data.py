"""Time batching in turn with a DataLoader."""

from __future__ import annotations

import tempfile
from collections import deque
from collections.abc import Iterator
from pathlib import Path

import torch
from torch import Tensor
from torch.nn.utils.rnn import pad_sequence
from torch.utils.data import DataLoader, Dataset

from bench.common import Figures, in_turn, make_parser, ratio_of, run, workload
from bench.workload import Workload
from transformer.config import PAD_ID
from transformer.data.batches import BatchPlan, collate
from transformer.data.buckets import Buckets
from transformer.data.store import TokenStore, write_store

PARSER = make_parser(__doc__, cpu=5, cuda=5)

Sides = tuple[Tensor, Tensor]


def measure_data(load: Workload, turns: int) -> Figures:
    """Plan and make all batches of an epoch in both ways.

    The plain loader works in this process and takes a fixed number of shuffled pairs per batch, so
    that batches hold as many tokens on average.
    """
    pairs = load.pairs()
    number = len(pairs.lengths)
    with tempfile.TemporaryDirectory() as folder:
        sides = (pairs[pair] for pair in range(number))
        write_store(Path(folder), [[(s.tolist(), t.tolist()) for s, t in sides]], load.vocab_size)
        store = TokenStore(Path(folder))
        plan = BatchPlan(Buckets.of(store.lengths), load.tokens_per_batch, seed=1)
        per_batch = max(1, int(load.tokens_per_batch / store.lengths.mean(axis=0).max()))
        times, plain_times = in_turn(
            range(turns),
            lambda epoch: deque(_batches(store, plan, epoch), maxlen=0),
            lambda epoch: deque(_plain_batches(store, per_batch, epoch), maxlen=0),
            device=torch.device("cpu"),
        )
        return {
            "turns": turns,
            "pairs": number,
            "pairs_per_second": turns * number / sum(times),
            "plain_pairs_per_second": turns * number / sum(plain_times),
            "ratio": ratio_of(plain_times, times),
            "ms_per_batch": 1e3 * sum(times) / (turns * len(plan)),
            "fill_of_the_batches": _fill(_batches(store, plan, 0)),
            "plain_fill_of_the_batches": _fill(_plain_batches(store, per_batch, 0)),
        }


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
    """The share of positions that hold real tokens."""
    sides = [side for batch in batches for side in batch]
    return sum(int(s.ne(PAD_ID).sum()) for s in sides) / sum(s.numel() for s in sides)


if __name__ == "__main__":
    run("data", PARSER, lambda given: measure_data(workload(given.device), given.turns))
