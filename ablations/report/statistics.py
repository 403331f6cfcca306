"""Means over seeds, differences, seeds needed, rank correlation.

scipy has all of this too, but where it is installed, importing Lightning imports it as well and
takes twice as long.
"""

from __future__ import annotations

import bisect
import functools
import math
import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from mpmath import betainc, findroot

CONFIDENCE = 0.95
POWER = 0.8
# More seeds than anyone is going to run.
MAX_SEEDS = 100

Bounds = tuple[float, float]
_UNBOUNDED = (-math.inf, math.inf)


@dataclass(frozen=True, slots=True)
class Estimate:
    """A mean over ``count`` seeds, of a score or of a row less the base, and its deviation.

    The sample standard deviation is None for one seed, or if a value is not finite; one that is
    pooled over rows has ``pooled_freedom`` degrees of freedom. ``bounds`` are the least and the
    greatest value that the mean can have.
    """

    mean: float
    deviation: float | None
    count: int
    bounds: Bounds = _UNBOUNDED
    pooled_freedom: int | None = None

    @property
    def standard_error(self) -> float | None:
        """The standard error of the mean; None without a deviation."""
        return None if self.deviation is None else self.deviation / math.sqrt(self.count)

    @property
    def interval(self) -> Bounds | None:
        """The 95 % interval by Student's t, cut off at the bounds; None without a deviation."""
        if self.standard_error is None:
            return None
        freedom = self.pooled_freedom or self.count - 1
        half = t_quantile((1 + CONFIDENCE) / 2, freedom) * self.standard_error
        return max(self.mean - half, self.bounds[0]), min(self.mean + half, self.bounds[1])

    @property
    def within_noise(self) -> bool | None:
        """True if the interval contains 0; None without an interval."""
        return None if self.interval is None else self.interval[0] <= 0 <= self.interval[1]


def estimate(values: Sequence[float], bounds: Bounds = _UNBOUNDED) -> Estimate | None:
    """The mean of one value per seed, which lies within ``bounds``; None without values."""
    if not values:
        return None
    if not all(map(math.isfinite, values)):
        # A run that diverged; fmean refuses infinities of both signs.
        return Estimate(sum(values) / len(values), None, len(values), bounds)
    deviation = statistics.stdev(values) if len(values) > 1 else None
    return Estimate(statistics.fmean(values), deviation, len(values), bounds)


def mean_difference(pairs: Sequence[float], scale: Bounds = _UNBOUNDED) -> Estimate | None:
    """The mean of differences, one per seed, of values on a scale with these ends."""
    return estimate(pairs, (scale[0] - scale[1], scale[1] - scale[0]))


def paired_difference(
    ours: Mapping[int, float], base: Mapping[int, float], scale: Bounds = _UNBOUNDED
) -> Estimate | None:
    """The mean of ``ours`` less ``base``, values by seed; None without a common seed.

    Pairing removes what a seed does to both rows alike, such as the order of the batches.
    """
    return mean_difference([ours[seed] - base[seed] for seed in ours if seed in base], scale)


@functools.cache
def t_quantile(probability: float, freedom: int) -> float:
    """The value that Student's t stays below with ``probability``, which is above a half."""

    def excess(t: float) -> float:
        share = freedom / (freedom + t**2)
        above = betainc(freedom / 2, 0.5, 0, share, regularized=True) / 2
        return above - (1 - probability)

    return float(findroot(excess, statistics.NormalDist().inv_cdf(probability)))


def required_seeds(difference: Estimate) -> int | None:
    """The sample size that would show the difference, if it and its spread are those observed.

    The least n of a paired t test at two-sided 5 % with a power of 80 %,
    √n ≥ (t(0.975) + t(0.8)) · deviation / mean with n - 1 degrees of freedom, or those of a
    pooled deviation (Zar 2010, Biostatistical Analysis, section 7.7); the exact n, by the
    noncentral t, is the same or one more. At least 2; None for more than ``MAX_SEEDS``.

    Raises:
        ValueError: if the difference has no deviation.
    """
    deviation = difference.deviation
    if deviation is None:
        raise ValueError("a difference of one pair has no deviation")

    def is_enough(count: int) -> bool:
        freedom = difference.pooled_freedom or count - 1
        errors = t_quantile((1 + CONFIDENCE) / 2, freedom) + t_quantile(POWER, freedom)
        return errors * deviation <= math.sqrt(count) * abs(difference.mean)

    counts = range(2, MAX_SEEDS + 1)
    found = bisect.bisect_left(counts, True, key=is_enough) if difference.mean else len(counts)
    return counts[found] if found < len(counts) else None


@dataclass(frozen=True, slots=True)
class Correlation:
    """Spearman's rank correlation over ``count`` rows; ``value`` is None where it is undefined."""

    value: float | None
    count: int

    @property
    def interval(self) -> Bounds | None:
        """The 95 % confidence interval, the rows taken as a sample of all possible rows.

        Fisher's z with the standard error √((1 + r²/2) / (n - 3)) of Bonett and Wright (2000),
        Psychometrika 65, 23-28. (A bootstrap would draw some rows twice, which makes ties that the
        table does not have, and is too narrow for twenty rows.) A perfect order, where z is
        infinite, has the far end of the nearest order that is not perfect. None for fewer than
        four rows.
        """
        if self.value is None or self.count < 4:
            return None
        nearest = 1 - 12 / (self.count**3 - self.count)  # two neighbours swapped
        value = math.copysign(min(abs(self.value), nearest), self.value)
        error = math.sqrt((1 + value**2 / 2) / (self.count - 3))
        half = statistics.NormalDist().inv_cdf((1 + CONFIDENCE) / 2) * error
        low, high = math.tanh(math.atanh(value) - half), math.tanh(math.atanh(value) + half)
        if abs(self.value) > nearest:
            return (low, 1.0) if value > 0 else (-1.0, high)
        return low, high


def rank_correlation(ours: Sequence[float], paper: Sequence[float]) -> Correlation:
    """Spearman's correlation of two columns, ties with their mean rank.

    It is undefined for fewer than three rows, or if all values of a column are equal.
    """
    value = None
    if len(ours) >= 3 and len(set(ours)) > 1 and len(set(paper)) > 1:
        value = statistics.correlation(_ranks(ours), _ranks(paper))
    return Correlation(value, len(ours))


def _ranks(values: Sequence[float]) -> list[float]:
    # statistics.correlation(method="ranked") needs Python 3.12.
    ordered = sorted(values)
    return [ordered.index(value) + (ordered.count(value) + 1) / 2 for value in values]
