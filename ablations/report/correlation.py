"""Whether one column orders the rows as another does: Spearman's rank correlation."""

from __future__ import annotations

import math
import statistics
from collections.abc import Sequence
from dataclasses import dataclass

from ablations.report.estimates import CONFIDENCE


@dataclass(frozen=True, slots=True)
class Correlation:
    """Spearman's rank correlation with the paper, over ``count`` rows; None where undefined."""

    value: float | None
    count: int

    @property
    def interval(self) -> tuple[float, float] | None:
        """The 95 % interval, with the rows taken as a sample of all rows there could be.

        Fisher's z with the standard error √((1 + r²/2) / (n - 3)) of Bonett and Wright (2000),
        Psychometrika 65, 23-28. A bootstrap over rows would draw some of them twice, and so make
        ties that the table has not; it is too narrow for twenty rows. None for fewer than four
        rows and for a perfect order, where z is infinite.
        """
        if self.value is None or self.count < 4 or abs(self.value) >= 1 - 1e-12:
            return None
        error = math.sqrt((1 + self.value**2 / 2) / (self.count - 3))
        half = statistics.NormalDist().inv_cdf((1 + CONFIDENCE) / 2) * error
        middle = math.atanh(self.value)
        return math.tanh(middle - half), math.tanh(middle + half)


def correlate(ours: Sequence[float], paper: Sequence[float]) -> Correlation:
    """The correlation of two columns with a value for each row."""
    return Correlation(spearman(ours, paper), len(ours))


def spearman(ours: Sequence[float], paper: Sequence[float]) -> float | None:
    """Spearman's rank correlation with tied ranks averaged.

    None for fewer than three pairs, or where all of one side are equal.
    """
    if len(ours) < 3 or len(set(ours)) < 2 or len(set(paper)) < 2:
        return None
    return statistics.correlation(ranks(ours), ranks(paper))


def ranks(values: Sequence[float]) -> list[float]:
    """The rank of each value from 1, the mean of the ranks they cover for equal ones.

    Example:
        >>> ranks([10.0, 30.0, 10.0])
        [1.5, 3.0, 1.5]
    """
    return [
        sum(other < value for other in values) + (sum(other == value for other in values) + 1) / 2
        for value in values
    ]
