"""The verdict on numbers."""

from __future__ import annotations

import math

import pytest

from ablations.proposals.decide import (
    Spread,
    Verdict,
    compare,
    decide,
    level_of,
    smallest_gain,
    spread_of,
)

# Ten scores with mean 0: squares 0.9, variance 0.1.
BASE = (0.3, -0.3) * 5
# With the squares 0.02 of two seeds at 0.1 around their mean, s² = (4 * 0.9 + 0.02) / 10 = 0.362,
# the standard error is √(0.362 / 2 + 0.1 / 10), and Student's t of 10 degrees is 2.6338 at 0.9875.
ERROR = math.sqrt(0.191)
CRITICAL = 2.6338 * ERROR


def around(mean: float) -> tuple[float, float]:
    return mean - 0.1, mean + 0.1


def test_a_comparison_by_hand() -> None:
    found = compare(BASE, around(-1.0), earlier=Spread(), look=1)
    assert found.difference == pytest.approx(-1.0)
    assert found.standard_error == pytest.approx(ERROR)
    assert (found.freedom, found.level) == (10, 0.025)
    low, high = found.interval
    assert (low + high) / 2 == pytest.approx(-1.0) and (high - low) / 2 == pytest.approx(
        CRITICAL, rel=1e-4
    )
    # Student's t of 2 degrees has 1/2 - t / (2 √(t² + 2)) above t.
    exact = compare((1.0, -1.0), (3.0, 5.0), earlier=Spread(), look=1)
    t = 4 / math.sqrt((4 * 2 + 2) / 2 / 2 + 2 / 2)
    assert exact.freedom == 2 and exact.p == pytest.approx(1 - t / math.sqrt(t**2 + 2))


def test_p_is_below_the_level_where_the_interval_is_on_one_side() -> None:
    for look in (1, 2, 7, 23):
        for step in range(1, 40):
            found = compare(BASE, around(-step / 7), earlier=Spread(0.11, 3), look=look)
            assert (found.p < found.level) == (found.interval[1] < 0) == found.is_significant


def test_each_verdict_is_on_its_side_of_the_critical_difference() -> None:
    for factor, verdict in (
        (-1.01, Verdict.BETTER),
        (-0.99, Verdict.SAME),
        (0.99, Verdict.SAME),
        (1.01, Verdict.WORSE),
    ):
        assert decide(BASE, around(factor * CRITICAL), planned=2, look=1) == verdict


def test_only_worse_comes_before_all_seeds() -> None:
    assert decide(BASE, around(-9.0), planned=4, look=1) is None
    assert decide(BASE, around(0.0), planned=4, look=1) is None
    assert decide(BASE, around(9.0), planned=4, look=1) == Verdict.WORSE
    assert decide(BASE, around(-9.0), planned=4, lost=1, look=1) is None
    assert decide(BASE, around(-9.0), planned=4, lost=2, look=1) == Verdict.BETTER


def test_what_diverged_is_worse_and_what_is_lost_has_no_verdict() -> None:
    assert decide(BASE, (), planned=4, has_diverged=True, look=1) == Verdict.WORSE
    assert decide(BASE, around(-9.0), planned=3, has_diverged=True, look=1) == Verdict.WORSE
    assert decide(BASE, (), planned=3, lost=3, look=1) == Verdict.NONE
    assert decide(BASE, (), planned=3, lost=2, look=1) is None


def test_levels_add_up_to_five_per_cent() -> None:
    assert level_of(1) == 0.025 and level_of(4) == pytest.approx(0.05 / 20)
    assert sum(map(level_of, range(1, 10_000))) == pytest.approx(0.05, abs=1e-5)


def test_spreads_are_around_each_proposals_own_mean() -> None:
    found = spread_of([(1.0, 3.0), (11.0,), (7.0, 7.0, 10.0)])
    assert found == Spread(2.0 + 6.0, 1 + 2)
    assert spread_of([]) == Spread()


def test_a_ledger_of_wide_proposals_widens_the_next_interval() -> None:
    alone = compare(BASE, around(0.0), earlier=Spread(), look=5)
    wide = compare(BASE, around(0.0), earlier=Spread(40.0, 10), look=5)
    narrow = compare(BASE, around(0.0), earlier=Spread(0.4, 10), look=5)
    assert narrow.standard_error < alone.standard_error < wide.standard_error
    assert narrow.freedom == wide.freedom == 20


def test_the_smallest_gain_by_hand_and_its_price() -> None:
    # The prior alone: s² = 4 * 0.1, with 10 degrees once two seeds are there; t is 0.8791 at 0.8.
    error = math.sqrt(0.4 / 2 + 0.1 / 10)
    found = smallest_gain(BASE, 2, earlier=Spread(), look=1)
    assert found == pytest.approx((2.6338 + 0.8791) * error, rel=1e-4)
    assert smallest_gain(BASE, 2, earlier=Spread(), look=20) > found
    later = smallest_gain(BASE, 2, earlier=Spread(), look=1, more=20)
    assert found < later < smallest_gain(BASE, 2, earlier=Spread(), look=21)
    assert smallest_gain(BASE, 4, earlier=Spread(), look=1) < found


def test_scores_that_are_all_equal() -> None:
    same = (2.0,) * 3
    assert compare(same, (2.0, 2.0), earlier=Spread(), look=1).p == 1
    assert compare(same, (1.0, 1.0), earlier=Spread(), look=1).p == 0
    assert decide(same, (2.0, 2.0), planned=2, look=1) == Verdict.SAME
    assert decide(same, (1.0, 1.0), planned=2, look=1) == Verdict.BETTER
