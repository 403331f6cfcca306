"""Stores, buckets and their shuffle, the plan of batches, shards, halves and loaders."""

from __future__ import annotations

import itertools
import threading
import time
from collections.abc import Iterable
from itertools import islice
from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.samples import TINY_MODEL, tiny_model
from transformer.config import BOS_ID, EOS_ID, PAD_ID
from transformer.data import buckets as buckets_module
from transformer.data.batches import Batch, BatchPlan, collate
from transformer.data.buckets import Buckets, Integers, batches_by_length, shuffled
from transformer.data.module import PlannedLoader, prefetch
from transformer.data.store import EncodedPairs, Pair, write_store
from transformer.training.loss import smoothed_cross_entropy

BUDGET = 29

length = st.integers(1, BUDGET + 8)
lengths_of_pairs = st.lists(st.tuples(length, length), min_size=1, max_size=67).map(np.array)
seeds = st.integers(0, 2**31)
epochs = st.integers(0, 10_000)
quickly = settings(max_examples=60)

# pairs of (source, target) word-pieces; each side ends with 3
PAIRS: list[Pair] = [
    ([11, 3], [21, 22, 23, 3]),
    ([12, 13, 14, 3], [24, 3]),
    ([15, 16, 3], [25, 26, 3]),
    ([17, 3], [3]),
    ([18, 19, 3], [27, 28, 29, 30, 3]),
]


@pytest.mark.parametrize(
    ("vocab_size", "last", "width"), [(65_536, 65_535, 2), (70_002, 70_001, 4), (31, 7, 2)]
)
def test_what_is_written_is_read(vocab_size: int, last: int, width: int, tmp_path: Path) -> None:
    pairs: list[Pair] = [*PAIRS, ([last, 3], [3])]
    write_store(tmp_path, [pairs[:2], [], pairs[2:]], vocab_size)
    store = EncodedPairs.open(tmp_path)
    assert store.lengths.tolist() == [[len(source), len(target)] for source, target in pairs]
    (tokens,) = tmp_path.glob("tokens.*")
    assert tokens.stat().st_size == width * store.lengths.sum()
    for found in (store, EncodedPairs.of(pairs)):
        assert [tuple(map(np.ndarray.tolist, found[i])) for i in range(len(found))] == pairs


def plan_of(lengths: Integers, budget: int, seed: int) -> BatchPlan:
    return BatchPlan(Buckets.of(lengths), budget, seed)


def epoch_of(plan: BatchPlan, epoch: int) -> list[Integers]:
    return [plan.batch(epoch * len(plan) + index) for index in range(len(plan))]


def lists(batches: Iterable[Integers]) -> list[list[int]]:
    return [batch.tolist() for batch in batches]


@quickly
@given(lengths_of_pairs, seeds, epochs, epochs)
def test_an_epoch_has_each_pair_once_and_depends_on_lengths_and_seed_alone(
    lengths: Integers, seed: int, epoch: int, other: int
) -> None:
    plan = plan_of(lengths, BUDGET, seed)
    before = lists(epoch_of(plan, other))
    np.random.seed(other)
    batches = lists(epoch_of(plan, epoch))
    assert sorted(itertools.chain(*batches)) == list(range(len(lengths)))
    assert len(batches) == len(plan) and all(batches)
    assert sorted(map(len, batches)) == sorted(map(len, before)), "the cuts are the same"
    fresh = plan_of(lengths.copy(), BUDGET, seed)
    index = seed % len(plan)
    assert fresh.batch(epoch * len(plan) + index).tolist() == batches[index]
    assert lists(epoch_of(fresh, epoch)) == batches


@pytest.mark.parametrize(("budget", "spread"), [(1_000, 0.15), (25_000, 0.03)])
def test_training_fills_the_fuller_side_to_the_budget(budget: int, spread: float) -> None:
    """With lengths as in news, where German has more word-pieces than English."""
    random = np.random.default_rng(11)
    source = np.clip(random.lognormal(3.2, 0.55, 60_013), 2, 150)
    target = np.clip(source * random.normal(1.08, 0.12, len(source)), 2, 170)
    lengths = np.column_stack([source, target]).astype(np.int64)
    plan = plan_of(lengths, budget, 7)
    totals = np.array([lengths[batch].sum(axis=0) for batch in epoch_of(plan, 3)])
    assert len(totals) == pytest.approx(lengths[:, 1].sum() / budget, rel=0.03, abs=1)
    fuller = np.sort(totals.max(axis=1))[1:]  # the remainder is one short batch
    assert fuller.mean() == pytest.approx(budget, rel=0.03)
    assert np.abs(fuller - budget).max() < spread * budget


@quickly
@given(lengths_of_pairs)
def test_evaluation_batches_are_as_full_as_the_budget_allows(lengths: Integers) -> None:
    batches = batches_by_length(lengths, BUDGET)
    assert sorted(np.concatenate(batches)) == list(range(len(lengths)))
    for batch in batches:
        assert len(batch) == 1 or lengths[batch].sum(axis=0).max() <= BUDGET
    for batch, following in itertools.pairwise(batches):
        with_next = lengths[batch].sum(axis=0) + lengths[following[0]]
        assert with_next.max() > BUDGET


def test_the_corpus_is_shuffled_as_a_whole_anew_for_each_seed_and_epoch() -> None:
    corpus = np.random.default_rng(7).integers(1, 14, size=(1_009, 2))
    plans = [epoch_of(plan_of(corpus, 101, seed), epoch) for seed in (1, 2) for epoch in (0, 1)]
    for i, one in enumerate(plans):
        for other in plans[:i]:
            assert len({*map(tuple, lists(one))} & {*map(tuple, lists(other))}) < len(one) / 10
            assert [len(b) for b in one] != [len(b) for b in other]
        second = [(batch >= 504).mean() for batch in one]  # as if two texts were concatenated
        assert 0.45 < np.mean(second) < 0.55
        assert np.mean([0.1 < share < 0.9 for share in second]) > 0.8
        means = [corpus[batch, 0].mean() for batch in one]
        assert abs(np.corrcoef(means, np.arange(len(means)))[0, 1]) < 0.3


def test_buckets_hold_pairs_of_similar_length_in_order(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(buckets_module, "_AT_ONCE", 101)
    lengths = np.random.default_rng(3).integers(1, 97, size=(1_013, 2), dtype=np.uint32)
    buckets = Buckets.of(lengths)
    assert sorted(buckets.pairs) == list(range(1_013))
    parts = np.split(buckets.pairs, buckets.sizes.cumsum()[:-1])
    longer = [lengths[part].max(axis=1) for part in parts]
    for part, sides, tokens in zip(parts, longer, buckets.tokens, strict=True):
        assert len(part) > 0
        assert sides.max() <= 1.1 * sides.min() + 1
        assert lengths[part].sum(axis=0).tolist() == tokens.tolist()
    for shorter, following in itertools.pairwise(longer):
        assert shorter.max() < following.min()


@quickly
@given(st.integers(1, 400), st.integers(0, 2**60), st.integers(0, 2**31))
def test_a_shuffle_is_a_permutation(size: int, key: int, other: int) -> None:
    moved = shuffled(np.arange(size), size, (key, other))
    assert sorted(moved) == list(range(size))
    some = np.arange(0, size, 3)
    assert np.array_equal(shuffled(some, size, (key, other)), moved[::3])


@pytest.mark.parametrize("size", [2, 7, 30])
def test_a_shuffle_is_uniform(size: int) -> None:
    shuffles = np.array([shuffled(np.arange(size), size, (7, key)) for key in range(1_009)])
    for place in (0, size // 2, size - 1):
        shares = np.bincount(shuffles[:, place], minlength=size) / 1_009 * size
        assert np.all(np.abs(shares - 1) < 5 * np.sqrt(size / 1_009))


def test_a_batch_is_padded_and_its_targets_begin_with_bos() -> None:
    batch = collate(EncodedPairs.of(PAIRS), np.array([2, 0, 3]), number=41)
    assert batch.src.tolist() == [[15, 16, 3], [11, 3, 0], [17, 3, 0]]
    assert batch.tgt.tolist() == [[2, 25, 26, 3, 0], [2, 21, 22, 23, 3], [2, 3, 0, 0, 0]]
    assert batch.src.dtype == batch.tgt.dtype == torch.int64
    assert (PAD_ID, BOS_ID, EOS_ID) == (0, 2, 3)
    moved = batch.to("meta")
    assert moved.src.device.type == moved.tgt.device.type == "meta"
    for each in (batch, moved):
        assert (each.source_tokens, each.target_tokens, each.number) == (7, 8, 41)


@pytest.mark.parametrize("shards", [1, 2, 3, 5, 7])
def test_shards_sum_to_the_loss_and_gradient_of_the_whole(shards: int) -> None:
    model = tiny_model(TINY_MODEL)

    def backward(batch: Batch) -> float:
        labels = batch.tgt[:, 1:]
        real = labels.ne(PAD_ID)
        states = model.states(batch.src, batch.tgt[:, :-1])[real]
        smoothed, _ = smoothed_cross_entropy(states, model.embedding.weight, labels[real], 0.1, 61)
        (smoothed / batch.target_tokens).backward()
        return smoothed.item() / batch.target_tokens

    def gradients() -> list[torch.Tensor]:
        return [p.grad for p in model.parameters() if p.grad is not None]

    pairs, every = EncodedPairs.of(PAIRS), np.arange(5)
    alone = backward(collate(pairs, every))
    expected = [gradient.clone() for gradient in gradients()]
    model.zero_grad()
    parts = [collate(pairs, every, shard=shard, shards=shards) for shard in range(shards)]
    assert sum(map(backward, parts)) == pytest.approx(alone, rel=1e-12)
    torch.testing.assert_close(gradients(), expected, rtol=1e-9, atol=1e-12)


def test_halves_have_few_different_sizes() -> None:
    """Each new size means matrix products of new shapes."""
    random = np.random.default_rng(5)
    cuts: set[int] = set()
    for _ in range(101):
        lengths = np.sort(random.integers(7, 14, 67))
        rows = torch.tensor([[1] * n + [PAD_ID] * (14 - n) for n in lengths])
        first, second = Batch(src=rows, tgt=rows, source_tokens=1, target_tokens=1).halves()
        cuts.add(len(first.src))
        tokens = [int(half.src.count_nonzero()) for half in (first, second)]
        assert max(tokens) < 1.08 * sum(tokens) / 2
    assert len(cuts) <= 2


STORE = EncodedPairs.of(
    [([4 + i] * (1 + i % 5) + [3], [5 + i] * (1 + i % 7) + [3]) for i in range(53)]
)
PLAN = BatchPlan(Buckets.of(STORE.lengths), 29, seed=7)


@pytest.mark.parametrize(("world_size", "accumulate"), [(1, 1), (1, 6), (2, 3), (3, 2)])
def test_devices_and_micro_batches_give_the_same_shards(world_size: int, accumulate: int) -> None:
    """Consecutive within a device and across devices."""
    shards = world_size * accumulate
    devices = [
        list(PlannedLoader(STORE, PLAN, rank=rank, world_size=world_size, accumulate=accumulate))
        for rank in range(world_size)
    ]
    assert {len(batches) for batches in devices} == {accumulate * len(PLAN)}
    for number in range(len(PLAN)):
        steps = slice(number * accumulate, (number + 1) * accumulate)
        found = [batch for batches in devices for batch in batches[steps]]
        assert [(batch.number, batch.shard) for batch in found] == [
            (number, shard) for shard in range(shards)
        ]
        for shard, batch in enumerate(found):
            expected = collate(STORE, PLAN.batch(number), shard=shard, shards=shards)
            assert torch.equal(batch.src, expected.src) and torch.equal(batch.tgt, expected.tgt)


def test_a_loader_continues_to_the_end_of_the_epoch() -> None:
    """A batch that was interrupted between its micro-batches starts over."""
    first, end = 2 * len(PLAN) + 5, 3 * len(PLAN)
    loader = PlannedLoader(STORE, PLAN, first=first, accumulate=3)
    begun = [batch.number for batch in islice(loader, 5)]
    assert begun == [first] * 3 + [first + 1] * 2
    rest = [(batch.number, batch.shard) for batch in loader]
    assert rest == list(itertools.product(range(first + 1, end), range(3)))
    assert next(iter(loader)).number == end


def test_a_bounded_number_of_items_is_prefetched_in_order() -> None:
    assert list(prefetch(lambda x: x * x, range(23))) == [x * x for x in range(23)]
    before, made = threading.active_count(), list[int]()
    items = prefetch(made.append, range(101))
    next(items)
    while 4 not in made:
        time.sleep(0.001)
    items.close()
    assert max(made) <= 5
    assert threading.active_count() == before, "the thread has ended"


def test_an_exception_is_raised_when_its_item_is_due() -> None:
    items = prefetch(lambda x: 7 // (2 - x), range(5))
    assert [next(items), next(items)] == [3, 7]
    with pytest.raises(ZeroDivisionError):
        next(items)
