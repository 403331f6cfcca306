"""The loaders: epochs, resuming, shards and prefetching."""

from __future__ import annotations

from itertools import islice

import pytest
import torch

from transformer.data.batches import Batch, BatchPlan, collate
from transformer.data.buckets import Buckets
from transformer.data.module import PlannedLoader
from transformer.data.store import TokenStore, write_store

PAIRS = [([4 + i] * (1 + i % 5) + [3], [5 + i] * (1 + i % 7) + [3]) for i in range(53)]


@pytest.fixture
def store(tmp_path_factory: pytest.TempPathFactory) -> TokenStore:
    directory = tmp_path_factory.mktemp("store")
    write_store(directory, PAIRS, 61)
    return TokenStore(directory)


@pytest.fixture
def plan(store: TokenStore) -> BatchPlan:
    return BatchPlan(Buckets.of(store.lengths), 29, seed=7)


def numbers(batches: list[Batch]) -> list[int]:
    return [batch.number for batch in batches]


def test_each_iteration_is_the_next_epoch(store: TokenStore, plan: BatchPlan) -> None:
    loader = PlannedLoader(store, plan)
    epochs = [list(loader) for _ in range(3)]
    assert [numbers(epoch) for epoch in epochs] == [
        list(range(e * len(plan), (e + 1) * len(plan))) for e in range(3)
    ]
    assert len(loader) == len(plan)
    for number, batch in enumerate(batch for epoch in epochs for batch in epoch):
        expected = collate(store, plan.batch(number), number=number)
        assert torch.equal(batch.src, expected.src) and torch.equal(batch.tgt, expected.tgt)


@pytest.mark.parametrize("epochs_before", [0, 2])
def test_a_loader_starts_and_continues_in_the_middle_of_an_epoch(
    epochs_before: int, store: TokenStore, plan: BatchPlan
) -> None:
    first, end = epochs_before * len(plan) + 5, (epochs_before + 1) * len(plan)
    loader = PlannedLoader(store, plan, first=first)
    assert numbers(list(islice(loader, 3))) == list(range(first, first + 3))
    assert numbers(list(loader)) == list(range(first + 3, end))
    assert numbers(list(loader))[0] == end


@pytest.mark.parametrize(("world_size", "accumulate"), [(1, 6), (2, 3), (3, 2)])
def test_devices_and_micro_batches_give_the_same_shards(
    world_size: int, accumulate: int, store: TokenStore, plan: BatchPlan
) -> None:
    """Six shards, consecutive within a device and across devices."""
    devices = [
        list(PlannedLoader(store, plan, rank=rank, world_size=world_size, accumulate=accumulate))
        for rank in range(world_size)
    ]
    assert {len(batches) for batches in devices} == {accumulate * len(plan)}
    for number in range(len(plan)):
        steps = slice(number * accumulate, (number + 1) * accumulate)
        found = [batch for batches in devices for batch in batches[steps]]
        expected = [
            collate(store, plan.batch(number), number=number, shard=shard, shards=6)
            for shard in range(6)
        ]
        assert [batch.shard for batch in found] == list(range(6))
        assert numbers(found) == [number] * 6
        assert all(torch.equal(a.tgt, b.tgt) for a, b in zip(found, expected, strict=True))


def test_a_batch_interrupted_between_micro_batches_starts_over(
    store: TokenStore, plan: BatchPlan
) -> None:
    loader = PlannedLoader(store, plan, accumulate=3)
    assert numbers(list(islice(loader, 5))) == [0, 0, 0, 1, 1]
    again = list(islice(loader, 4))
    assert [(batch.number, batch.shard) for batch in again] == [(1, 0), (1, 1), (1, 2), (2, 0)]
