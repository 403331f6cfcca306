"""A mean over seeds with its confidence interval.

scipy has most of this too, but where it is installed, importing Lightning imports it as well and
takes twice as long.
"""

from __future__ import annotations

import functools
import math
import statistics
from collections.abc import Sequence
from dataclasses import dataclass

from mpmath import betainc, findroot

CONFIDENCE = 0.95
Bounds = tuple[float, float]
UNBOUNDED = (-math.inf, math.inf)


@dataclass(frozen=True, slots=True)
class Estimate:
    """A mean over ``count`` seeds, which lies within ``bounds``.

    ``deviation`` is the standard deviation between seeds: None for one seed, or for values that are
    not finite. ``pooled_freedom`` are its degrees of freedom if it is pooled over rows.
    """

    mean: float
    deviation: float | None
    count: int
    bounds: Bounds = UNBOUNDED
    pooled_freedom: int | None = None

    @property
    def standard_error(self) -> float | None:
        """The standard error of the mean."""
        return None if self.deviation is None else self.deviation / math.sqrt(self.count)

    @property
    def interval(self) -> Bounds | None:
        """The 95 % confidence interval by Student's t, cut off at the bounds."""
        if self.standard_error is None:
            return None
        freedom = self.pooled_freedom or self.count - 1
        half = t_quantile((1 + CONFIDENCE) / 2, freedom) * self.standard_error
        return max(self.mean - half, self.bounds[0]), min(self.mean + half, self.bounds[1])

    @property
    def within_noise(self) -> bool | None:
        """Whether the confidence interval contains 0; None if there is none."""
        return None if self.interval is None else self.interval[0] <= 0 <= self.interval[1]


def estimate(values: Sequence[float], bounds: Bounds = UNBOUNDED) -> Estimate | None:
    """The mean of one value per seed, which lies within ``bounds``; None without values."""
    if not values:
        return None
    if not all(map(math.isfinite, values)):
        # A run that diverged; fmean refuses infinities of both signs.
        return Estimate(sum(values) / len(values), None, len(values), bounds)
    deviation = statistics.stdev(values) if len(values) > 1 else None
    return Estimate(statistics.fmean(values), deviation, len(values), bounds)


@functools.cache
def t_quantile(probability: float, freedom: int) -> float:
    """The value that Student's t stays below with ``probability``, which is above a half."""

    def excess(t: float) -> float:
        return t_tail(t, freedom) - (1 - probability)

    return float(findroot(excess, statistics.NormalDist().inv_cdf(probability)))


def t_tail(t: float, freedom: int) -> float:
    """The probability that Student's t is above ``t``, which is not below 0."""
    share = freedom / (freedom + t**2)
    return betainc(freedom / 2, 0.5, 0, share, regularized=True) / 2
