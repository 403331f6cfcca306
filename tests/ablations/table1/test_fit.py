"""Exponents and crossings of made-up costs."""

from __future__ import annotations

import pytest

from ablations.table1.fit import find_crossing, fit_exponent, fit_slope


def test_the_exponent_of_a_power_law_is_exact() -> None:
    costs = {(n, d): 7.0 * n**2 * d for n in (3, 5, 11) for d in (2, 13)}
    slope = fit_exponent(costs)
    assert slope is not None
    assert slope.value == pytest.approx(2)
    assert slope.half_width < 1e-6


def test_two_points_have_no_interval() -> None:
    assert fit_slope([[(1.0, 1.0), (2.0, 3.0)]]) is None


def test_a_crossing_lies_between_the_lengths_around_it() -> None:
    def ratios(factor: float) -> dict[int, list[float]]:
        return {
            n: [factor * n / 100 * spread for spread in (0.8, 1.0, 1.25)] for n in (32, 64, 128)
        }

    assert find_crossing(ratios(1.0)) == pytest.approx([80, 100, 125])
    assert find_crossing(ratios(0.5)) == [None, None, None]
    first, middle, last = find_crossing(ratios(0.8))
    assert (first, middle, last) == (pytest.approx(100), pytest.approx(125), None)
