"""False verdicts by chance, and the power to find gains."""

from __future__ import annotations

import pytest

from tests.ablations.proposals.calibration import null_series, power

# Standard errors of these shares are below 0.5 %.
SERIES = 2_000


@pytest.mark.long
@pytest.mark.timeout(1200)
@pytest.mark.parametrize("seeds", [2, 4])
@pytest.mark.parametrize("ratio", [1.0, 2.0])
def test_at_most_one_ledger_in_twenty_calls_a_change_of_nothing_better(
    seeds: int, ratio: float
) -> None:
    found = null_series(seeds, ratio, SERIES)
    assert found.first_better <= 2.5 and found.any_better <= 5
    assert found.first_worse <= 5 and found.any_worse <= 5


@pytest.mark.long
@pytest.mark.timeout(1200)
@pytest.mark.parametrize(("seeds", "look"), [(2, 1), (2, 21), (4, 1), (4, 21)])
def test_the_smallest_gain_is_seen_in_four_of_five(seeds: int, look: int) -> None:
    assert power(seeds, look, 4_000) == pytest.approx(80, abs=4)
