"""Pooled spreads and their tests, against tables and by hand."""

from __future__ import annotations

import math
from random import Random

import numpy as np
import pytest

from ablations.report.pooling import dunnett, pool
from ablations.report.statistics import paired_difference


def test_the_pool_of_two_rows_is_their_paired_spread() -> None:
    ours, base = {1: 5.0, 2: 7.0, 3: 12.0}, {1: 1.0, 2: 2.0, 3: 4.0}
    found, paired = pool({"ours": ours, "base": base}), paired_difference(ours, base)
    assert found is not None and paired is not None and paired.interval is not None
    assert found.freedom == 2 and found.p_equal == pytest.approx(1.0)
    assert found.apply(paired).interval == pytest.approx(paired.interval)


def test_unbalanced_rows_by_hand() -> None:
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


def test_one_seed_has_no_pool() -> None:
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


def test_the_p_value_of_three_rows_and_two_seeds_in_closed_form() -> None:
    """Seeds move the rows by 1, 2 and 4, so residuals are as -4, -1 and 5.

    Three that sum to 0 are a point on a circle, whose angle to the nearest of six axes is uniform
    up to 30 degrees; the largest square is at most 2/3 of all, times the squared cosine.
    """
    found = pool({"a": {1: 5.0, 2: 6.0}, "b": {1: 4.0, 2: 6.0}, "c": {1: 7.0, 2: 11.0}})
    assert found is not None and found.is_usable and found.freedom == 2
    angle = math.acos(math.sqrt(25 / 42 * 3 / 2))
    assert found.p_equal == pytest.approx(angle / math.radians(30), abs=0.02)


@pytest.mark.parametrize("shape", [(3, 2), (7, 2), (9, 3)])
def test_equal_variances_are_rejected_in_five_of_a_hundred_tables(shape: tuple[int, int]) -> None:
    random = np.random.default_rng(1)
    tables = random.standard_normal((400, *shape)) + random.standard_normal((400, 1, shape[1]))
    found = [pool({str(i): dict(enumerate(x)) for i, x in enumerate(t)}) for t in tables.tolist()]
    assert 8 <= sum(not x.is_usable for x in found if x) <= 32


def test_variances_that_a_table_cannot_tell_apart_are_equal() -> None:
    """Two rows have the same residuals, and so have seeds that agree to the last digit."""
    for rows in (
        {"a": {1: 0.1, 2: 7.3, 3: 0.4}, "b": {1: 5.0, 2: 5.1, 3: 5.3}},
        {"a": {1: 0.1, 2: 0.1}, "b": {1: 0.3, 2: 0.3}, "c": {1: 80.7, 2: 80.7}},
    ):
        found = pool(rows)
        assert found is not None and found.p_equal == 1.0
    assert found.deviation == 0.0
