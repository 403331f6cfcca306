"""The statistics of a report: means over seeds, differences, rank correlation, many comparisons.

With several seeds a report needs numpy and mpmath, which are imported where they are used: a report
of one seed needs neither. scipy has all of this too, but where it is installed, importing Lightning
imports it as well and takes twice as long.
"""

from __future__ import annotations

import bisect
import functools
import math
import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

CONFIDENCE = 0.95
POWER = 0.8
# More seeds than anyone is going to run.
MAX_SEEDS = 100
_DRAWS = 100_000


@dataclass(frozen=True, slots=True)
class Estimate:
    """A mean over ``count`` seeds with the sample standard deviation.

    The deviation is None for one seed, or if a value is not finite.
    """

    mean: float
    deviation: float | None
    count: int

    @property
    def freedom(self) -> int:
        """Degrees of freedom of the deviation."""
        return self.count - 1

    @property
    def standard_error(self) -> float | None:
        """The standard error of the mean; None without a deviation."""
        return None if self.deviation is None else self.deviation / math.sqrt(self.count)

    @property
    def interval(self) -> tuple[float, float] | None:
        """The 95 % confidence interval by Student's t; None without a deviation."""
        if self.standard_error is None:
            return None
        half = t_quantile((1 + CONFIDENCE) / 2, self.freedom) * self.standard_error
        return self.mean - half, self.mean + half


@dataclass(frozen=True, slots=True)
class Difference(Estimate):
    """A row less the base, paired by seed, over the ``count`` seeds that both have.

    ``pooled_freedom`` are the degrees of freedom of a deviation that is pooled over rows.
    """

    pooled_freedom: int | None = None

    @property
    def freedom(self) -> int:
        """Degrees of freedom of the deviation."""
        return self.pooled_freedom or self.count - 1

    @property
    def within_noise(self) -> bool | None:
        """Whether the interval contains 0; None without an interval."""
        if self.interval is None:
            return None
        low, high = self.interval
        return low <= 0 <= high


def estimate(values: Sequence[float]) -> Estimate | None:
    """The mean of one value per seed; None without values."""
    return Estimate(*_moments(values)) if values else None


def paired_difference(ours: Mapping[int, float], base: Mapping[int, float]) -> Difference | None:
    """The mean of ``ours`` less ``base``, values by seed; None without a common seed.

    Pairing removes what a seed does to both rows alike, such as the order of the batches.
    """
    pairs = [ours[seed] - base[seed] for seed in ours if seed in base]
    return mean_difference(pairs) if pairs else None


def mean_difference(pairs: Sequence[float]) -> Difference:
    """The mean of at least one difference, one per seed."""
    return Difference(*_moments(pairs))


def _moments(values: Sequence[float]) -> tuple[float, float | None, int]:
    if not all(map(math.isfinite, values)):
        # A run that diverged; fmean refuses infinities of both signs.
        return sum(values) / len(values), None, len(values)
    deviation = statistics.stdev(values) if len(values) > 1 else None
    return statistics.fmean(values), deviation, len(values)


@functools.cache
def t_quantile(probability: float, freedom: int) -> float:
    """The value that Student's t stays below with ``probability``, which is above a half."""
    from mpmath import betainc, findroot

    def excess(t: float) -> float:
        share = freedom / (freedom + t**2)
        above = betainc(freedom / 2, 0.5, 0, share, regularized=True) / 2
        return above - (1 - probability)

    return float(findroot(excess, statistics.NormalDist().inv_cdf(probability)))


def required_seeds(difference: Difference) -> int | None:
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
    def interval(self) -> tuple[float, float] | None:
        """The 95 % confidence interval, the rows taken as a sample of all possible rows.

        Fisher's z with the standard error √((1 + r²/2) / (n - 3)) of Bonett and Wright (2000),
        Psychometrika 65, 23-28. (A bootstrap would draw some rows twice, which makes ties that the
        table does not have, and is too narrow for twenty rows.) None for fewer than four rows and
        for a perfect order, where z is infinite.
        """
        if self.value is None or self.count < 4 or abs(self.value) >= 1 - 1e-12:
            return None
        error = math.sqrt((1 + self.value**2 / 2) / (self.count - 3))
        half = statistics.NormalDist().inv_cdf((1 + CONFIDENCE) / 2) * error
        middle = math.atanh(self.value)
        return math.tanh(middle - half), math.tanh(middle + half)


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


@dataclass(frozen=True, slots=True)
class Pool:
    """The spread that is left of a table's figures after the effects of row and seed.

    ``deviation`` is the residual standard deviation with ``freedom`` degrees of freedom, and
    ``p_equal`` the p value of Bartlett's test that it is the same in all rows. Three seeds leave
    the interval of a single row two degrees of freedom, twenty rows of them 38.
    """

    deviation: float
    freedom: int
    p_equal: float

    @property
    def is_usable(self) -> bool:
        """Whether the test does not reject that all rows have the same variance."""
        return self.p_equal >= 1 - CONFIDENCE

    def apply(self, paired: Difference) -> Difference:
        """A row less the base, with the pooled deviation in place of its own."""
        return Difference(paired.mean, math.sqrt(2) * self.deviation, paired.count, self.freedom)


def pool(rows: Mapping[str, Mapping[int, float]]) -> Pool | None:
    """The residuals of the two-way model row + seed, fitted to ``rows`` (values by seed).

    Rows may lack seeds; one with a value that is not finite is left out. None if no degree of
    freedom is left. Bartlett's test is used because that of Brown and Forsythe has hardly any
    power for three seeds, where the median is one of the three values. For it the effect of a
    seed is a median over rows: a mean would spread one row's outlier over all of them.
    """
    import numpy as np

    finite = [row for row in rows.values() if row and all(map(math.isfinite, row.values()))]
    seeds = sorted({seed for row in finite for seed in row})
    values = np.array([[row.get(seed, math.nan) for seed in seeds] for row in finite])
    if not values.size:
        return None
    of_row, of_seed = np.nonzero(~np.isnan(values))
    design = np.hstack([np.eye(len(finite))[of_row], np.eye(len(seeds))[of_seed]])
    observed = values[of_row, of_seed]
    fit, _, rank, _ = np.linalg.lstsq(design, observed)
    freedom = len(observed) - int(rank)
    if freedom < 1:
        return None
    deviation = math.sqrt(((observed - design @ fit) ** 2).sum() / freedom)
    centred = values - np.nanmean(values, axis=1, keepdims=True)
    centred -= np.nanmedian(centred, axis=0)
    squares = np.nansum((centred - np.nanmean(centred, axis=1, keepdims=True)) ** 2, axis=1)
    groups = [(float(s), len(row) - 1) for s, row in zip(squares, finite, strict=True)]
    return Pool(deviation, freedom, _bartlett([group for group in groups if group[1]]))


def _bartlett(groups: list[tuple[float, int]]) -> float:
    """The p value of Bartlett's test, from each group's sum of squares and degrees of freedom."""
    from mpmath import gammainc

    squares, freedom = (sum(column) for column in zip(*groups, strict=True))
    if len(groups) < 2 or not squares:
        return 1.0
    tiny = squares * 1e-12  # seeds that agree to the last digit have no logarithm
    spread = sum(n * math.log(max(square, tiny) / n) for square, n in groups)
    excess = freedom * math.log(squares / freedom) - spread
    correction = 1 + (sum(1 / n for _, n in groups) - 1 / freedom) / (3 * (len(groups) - 1))
    chi_squared, degrees = max(0.0, excess) / correction, len(groups) - 1
    return float(gammainc(degrees / 2, chi_squared / 2, regularized=True))


@functools.cache
def dunnett(seeds: tuple[frozenset[int], ...], freedom: int) -> float:
    """The critical value of Dunnett's test, in standard errors, for a family-wise error of 5 %.

    The quantile of the largest |t| (Dunnett 1955), by simulation to about 0.02. Unlike in the usual
    test, the samples are not independent: rows share seeds with the base.

    Args:
        seeds: for each row those that it shares with the base; rows that share them with each
            other are correlated through the base's runs
        freedom: of the pooled deviation
    """
    import numpy as np

    correlation = np.array(
        [[len(x & y) / (2 * math.sqrt(len(x) * len(y))) for y in seeds] for x in seeds]
    )
    np.fill_diagonal(correlation, 1.0)
    random = np.random.default_rng(0)
    normal = random.standard_normal((_DRAWS, len(seeds))) @ np.linalg.cholesky(correlation).T
    scale = np.sqrt(random.chisquare(freedom, _DRAWS) / freedom)
    return float(np.quantile(np.abs(normal).max(axis=1) / scale, CONFIDENCE))
