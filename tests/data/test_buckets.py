"""Buckets of similar length, and their shuffle."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from transformer.data import buckets as buckets_module
from transformer.data.buckets import Buckets, shuffled


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
