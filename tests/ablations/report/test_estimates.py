"""Means, differences and the number of seeds, against tables and by hand."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ablations.report.correlation import Correlation, correlate
from ablations.report.estimates import (
    Difference,
    estimate,
    mean_difference,
    paired_difference,
    seeds_to_tell,
)


def test_the_interval_of_three_numbers_by_hand() -> None:
    found = estimate([80.0, 81.0, 85.0])
    assert found is not None and found.interval is not None
    # mean 82, squares 4 + 1 + 9 over 2; t(0.975) of 2 degrees of freedom
    half = 4.302653 * math.sqrt(7 / 3)
    assert found.interval == pytest.approx((82 - half, 82 + half), abs=1e-5)


def test_one_seed_and_no_seed_have_no_interval() -> None:
    one = estimate([3.0])
    assert one is not None and (one.mean, one.interval) == (3.0, None)
    assert estimate([]) is None
    assert mean_difference([1.0]).within_noise is None
    with pytest.raises(ValueError, match="one pair"):
        seeds_to_tell(mean_difference([1.0]))


def test_pairs_tell_what_means_do_not() -> None:
    """A seed moves both rows by 10, and the second is 1 better with each."""
    base = {1: 10.0, 2: 20.0, 3: 30.0, 5: 99.0}
    ours = {1: 11.1, 2: 20.9, 3: 31.0, 7: -99.0}
    found = paired_difference(ours, base)
    assert found is not None and found.interval is not None
    assert (found.count, found.mean, found.within_noise) == (3, pytest.approx(1.0), False)
    assert found.deviation == pytest.approx(0.1)
    own = estimate([11.1, 20.9, 31.0])
    assert own is not None and own.interval is not None
    assert own.interval[0] < 20 < own.interval[1]
    assert paired_difference({1: 1.0}, {2: 1.0}) is None


def test_runs_that_diverged_have_no_spread() -> None:
    found = paired_difference({1: math.inf, 2: 3.0}, {1: 3.0, 2: math.inf})
    assert found is not None and math.isnan(found.mean) and found.within_noise is None


@pytest.mark.parametrize(
    ("effect", "seeds"),
    # The least n whose exact power, by scipy.special.nctdtr, is 0.8; the first five as in tables.
    [(0.3, 90), (0.5, 34), (0.8, 15), (1.0, 10), (1.5, 6), (2.0, 5), (0.2, None), (0.0, None)],
)
def test_seeds_to_tell_are_the_tables_of_power(effect: float, seeds: int | None) -> None:
    assert seeds_to_tell(Difference(effect, 1.0, 3)) == seeds
    assert seeds_to_tell(Difference(-7 * effect, 7.0, 5)) == seeds


def test_seeds_to_tell_ends() -> None:
    assert seeds_to_tell(Difference(1.0, 0.0, 2)) == 2
    assert seeds_to_tell(Difference(0.0, 0.0, 2)) is None


@given(
    st.lists(st.floats(-100, 100), min_size=2, max_size=7),
    st.floats(-50, 50),
)
def test_swapping_the_rows_turns_the_difference_round(values: list[float], shift: float) -> None:
    ours = dict(enumerate(values))
    base = dict.fromkeys(ours, shift)
    forth, back = paired_difference(ours, base), paired_difference(base, ours)
    assert forth is not None and back is not None
    assert forth.interval is not None and back.interval is not None
    assert forth.interval == pytest.approx((-back.interval[1], -back.interval[0]), abs=1e-9)
    assert forth.within_noise == back.within_noise
    assert seeds_to_tell(forth) == seeds_to_tell(back)


def test_the_interval_of_a_rank_correlation_by_hand() -> None:
    # atanh(0.8) = 1.098612, sqrt((1 + 0.32) / 17) = 0.278652, times 1.959964
    assert Correlation(0.8, 20).interval == pytest.approx(
        (math.tanh(1.098612 - 0.546148), math.tanh(1.098612 + 0.546148)), abs=1e-5
    )


def test_a_rank_correlation_has_no_interval_for_too_little() -> None:
    assert Correlation(0.5, 3).interval is None
    assert Correlation(None, 20).interval is None
    assert correlate([1, 2, 3, 4, 5], [2, 3, 5, 7, 11]).interval is None
