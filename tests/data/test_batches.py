"""Buckets and their shuffle, the plan of batches, and shards and halves of one."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Iterator

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
from transformer.data.store import PairsInMemory
from transformer.training.loss import smoothed_cross_entropy

BUDGET = 29


def as_lengths(pairs: list[tuple[int, int]]) -> Integers:
    return np.array(pairs, dtype=np.int64)


length = st.integers(1, BUDGET + 8)
lengths_of_pairs = st.lists(st.tuples(length, length), min_size=1, max_size=67).map(as_lengths)
seeds = st.integers(0, 2**31)
epochs = st.integers(0, 10_000)
quickly = settings(max_examples=60)


def plan_of(lengths: Integers, budget: int, seed: int) -> BatchPlan:
    return BatchPlan(Buckets.of(lengths), budget, seed)


def lists(batches: Iterable[Integers]) -> list[list[int]]:
    return [batch.tolist() for batch in batches]


@quickly
@given(lengths_of_pairs, seeds, epochs)
def test_each_pair_is_in_an_epoch_once(lengths: Integers, seed: int, epoch: int) -> None:
    plan = plan_of(lengths, BUDGET, seed)
    batches = list(plan.epoch(epoch))
    assert len(batches) == len(plan)
    assert sorted(np.concatenate(batches)) == list(range(len(lengths)))
    assert all(len(batch) > 0 for batch in batches)


@pytest.mark.parametrize(("budget", "spread"), [(1_000, 0.15), (25_000, 0.03)])
def test_training_fills_the_fuller_side_to_the_budget(budget: int, spread: float) -> None:
    """With lengths as in news, where German has more word-pieces than English."""
    random = np.random.default_rng(11)
    source = np.clip(random.lognormal(3.2, 0.55, 60_013), 2, 150)
    target = np.clip(source * random.normal(1.08, 0.12, len(source)), 2, 170)
    lengths = np.column_stack([source, target]).astype(np.int64)
    plan = plan_of(lengths, budget, 7)
    totals = np.array([lengths[batch].sum(axis=0) for batch in plan.epoch(3)])
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


@quickly
@given(lengths_of_pairs, seeds, epochs, epochs)
def test_a_batch_is_a_function_of_lengths_seed_and_number(
    lengths: Integers, seed: int, epoch: int, other: int
) -> None:
    plan = plan_of(lengths, BUDGET, seed)
    before = lists(plan.epoch(other))
    np.random.seed(other)
    batches = lists(plan.epoch(epoch))
    assert sorted(map(len, batches)) == sorted(map(len, before)), "the cuts are the same"
    fresh = plan_of(lengths.copy(), BUDGET, seed)
    index = seed % len(plan)
    assert fresh.batch(epoch * len(plan) + index).tolist() == batches[index]
    assert lists(fresh.epoch(epoch)) == batches


@pytest.fixture
def corpus() -> Integers:
    return np.random.default_rng(7).integers(1, 14, size=(1_009, 2))


def test_epochs_and_seeds_differ_in_batches_and_in_their_order(corpus: Integers) -> None:
    plans = [list(plan_of(corpus, 101, seed).epoch(epoch)) for seed in (1, 2) for epoch in (0, 1)]
    for i, one in enumerate(plans):
        for other in plans[:i]:
            assert len({*map(tuple, lists(one))} & {*map(tuple, lists(other))}) < len(one) / 10
            assert [len(b) for b in one] != [len(b) for b in other]


def test_the_corpus_is_shuffled_as_a_whole_and_not_by_length(corpus: Integers) -> None:
    batches = list(plan_of(corpus, 101, 5).epoch(0))
    second = [(batch >= 504).mean() for batch in batches]  # as if two texts were concatenated
    assert 0.45 < np.mean(second) < 0.55
    assert np.mean([0.1 < share < 0.9 for share in second]) > 0.8
    means = [corpus[batch, 0].mean() for batch in batches]
    assert abs(np.corrcoef(means, np.arange(len(means)))[0, 1]) < 0.3


# pairs of (source, target) word-pieces; each side ends with 3
PAIRS = PairsInMemory(
    [[11, 3], [12, 13, 14, 3], [15, 16, 3], [17, 3], [18, 19, 3]],
    [[21, 22, 23, 3], [24, 3], [25, 26, 3], [3], [27, 28, 29, 30, 3]],
)
ALL = np.arange(5)


def test_a_batch_is_padded_and_its_targets_begin_with_bos() -> None:
    batch = collate(PAIRS, np.array([2, 0, 3]), number=41)
    assert batch.src.tolist() == [[15, 16, 3], [11, 3, 0], [17, 3, 0]]
    assert batch.tgt.tolist() == [[2, 25, 26, 3, 0], [2, 21, 22, 23, 3], [2, 3, 0, 0, 0]]
    assert (batch.source_tokens, batch.target_tokens, batch.number) == (7, 8, 41)
    assert batch.src.dtype == batch.tgt.dtype == torch.int64
    assert (PAD_ID, BOS_ID, EOS_ID) == (0, 2, 3)
    moved = batch.to("meta")
    assert moved.src.device.type == moved.tgt.device.type == "meta"
    assert (moved.source_tokens, moved.target_tokens, moved.number) == (7, 8, 41)


def parts(shards: int, pairs: Integers = ALL) -> Iterator[Batch]:
    for shard in range(shards):
        yield collate(PAIRS, pairs, number=7, shard=shard, shards=shards)


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

    alone = backward(collate(PAIRS, ALL))
    expected = [gradient.clone() for gradient in gradients()]
    model.zero_grad()
    assert sum(map(backward, parts(shards))) == pytest.approx(alone, rel=1e-12)
    torch.testing.assert_close(gradients(), expected, rtol=1e-9, atol=1e-12)


def test_halves_have_few_different_sizes() -> None:
    """Each new size means matrix products of new shapes."""
    random = np.random.default_rng(5)
    cuts: list[int] = []
    for _ in range(101):
        lengths = np.sort(random.integers(7, 14, 67))
        rows = torch.tensor([[1] * n + [PAD_ID] * (14 - n) for n in lengths])
        first, second = Batch(src=rows, tgt=rows, source_tokens=1, target_tokens=1).halves()
        cuts.append(len(first.src))
        tokens = [int(half.src.count_nonzero()) for half in (first, second)]
        assert max(tokens) < 1.08 * sum(tokens) / 2
    assert len(set(cuts)) <= 2


@pytest.fixture
def lengths() -> np.ndarray:
    return np.random.default_rng(3).integers(1, 97, size=(1_013, 2), dtype=np.uint32)


def test_buckets_hold_pairs_of_similar_length_in_rising_order(
    lengths: np.ndarray, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(buckets_module, "_AT_ONCE", 101)
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


@settings(max_examples=60)
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
