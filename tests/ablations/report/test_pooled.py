"""The spread pooled over rows, the test that decides on it, and Dunnett's critical values."""

from __future__ import annotations

import math
from random import Random

import pytest

from ablations.report.estimates import Difference, mean_difference, paired_difference
from ablations.report.pooled import dunnett, pool


def test_two_rows_give_what_their_pairs_give() -> None:
    ours, base = {1: 5.0, 2: 7.0, 3: 12.0}, {1: 1.0, 2: 2.0, 3: 4.0}
    found, paired = pool({"ours": ours, "base": base}), paired_difference(ours, base)
    assert found is not None and paired is not None and paired.interval is not None
    assert found.freedom == 2 and found.p_equal == pytest.approx(1.0)
    assert found.widen(paired).interval == pytest.approx(paired.interval)


def test_unbalanced_cells_by_hand() -> None:
    """Without the seeds' effect, 10 and 20, only the third row has a residual."""
    rows = {
        "a": {1: 10.0, 2: 20.0},
        "b": {1: 11.0, 2: 21.0},
        "c": {1: 12.0, 2: 25.0},
        "one seed": {2: 99.0},
        "diverged": {1: math.inf, 2: 1.0},
        "none": {},
    }
    found = pool(rows)
    assert found is not None
    # The differences between seeds are 10, 10, 13: squares 1, 1, 4, of which each row has half.
    assert found.freedom == 2
    assert found.deviation == pytest.approx(math.sqrt((1 + 1 + 4) / 2 / 2))


def test_one_seed_leaves_nothing() -> None:
    assert pool({"a": {1: 1.0}, "b": {1: 2.0}}) is None
    assert pool({"a": {1: 1.0}, "b": {2: 2.0, 3: 4.0}}) is None
    assert pool({}) is None


def test_unequal_spreads_are_not_pooled() -> None:
    random = Random(1)
    rows = {
        str(row): {seed: 10 * seed + row + random.gauss(0, 1) for seed in (1, 2, 3)}
        for row in range(6)
    }
    alike = pool(rows)
    assert alike is not None and alike.is_usable and 0.5 < alike.deviation < 1.5
    rows["0"][2] += 30
    mixed = pool(rows)
    assert mixed is not None and not mixed.is_usable


def test_bartletts_p_is_scipys() -> None:
    # With these values the seeds have no effect:
    # scipy.stats.bartlett([1., -1, 0], [-1., 1, 0], [2., -2, 0], [-3., 3, 0]).pvalue
    found = pool(
        {
            "a": {1: 1.0, 2: -1.0, 3: 0.0},
            "b": {1: -1.0, 2: 1.0, 3: 0.0},
            "c": {1: 2.0, 2: -2.0, 3: 0.0},
            "d": {1: -3.0, 2: 3.0, 3: 0.0},
        }
    )
    assert found is not None and found.p_equal == pytest.approx(0.42028, abs=1e-4)


@pytest.mark.parametrize(
    ("rows", "freedom", "critical"),
    # scipy.stats.multivariate_t with correlations of a half.
    [(3, 10, 2.759), (5, 20, 2.735), (19, 38, 3.047)],
)
def test_dunnetts_critical_values(rows: int, freedom: int, critical: float) -> None:
    seeds = (frozenset({1, 2, 3}),) * rows
    assert dunnett(seeds, freedom) == pytest.approx(critical, abs=0.02)


def test_rows_that_share_no_run_of_the_base_are_independent() -> None:
    apart = dunnett(tuple(frozenset({seed}) for seed in range(5)), 1_000)
    # Šidák: the normal quantile of (1 + 0.95^(1/5)) / 2
    assert apart == pytest.approx(2.569, abs=0.02)
    assert dunnett((frozenset({1}),) * 5, 1_000) < apart - 0.05


def test_a_pooled_difference_of_one_seed_has_an_interval() -> None:
    assert mean_difference([1.0]).interval is None
    found = Difference(1.0, 0.5, 1, 38)
    # t(0.975) of 38 degrees of freedom is 2.0244
    assert found.interval == pytest.approx((1 - 1.0122, 1 + 1.0122), abs=1e-4)
