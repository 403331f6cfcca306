"""Differences, tests and rank correlations over seeds."""

from __future__ import annotations

import bisect
import functools
import math
import statistics
from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
from mpmath import betainc
from numpy.typing import NDArray

from experiments.records.estimate import (
    CONFIDENCE,
    UNBOUNDED,
    Bounds,
    Estimate,
    estimate,
    t_quantile,
)

POWER = 0.8
# More seeds than anyone is going to run.
MAX_SEEDS = 100

_DRAWS, _TABLES = 100_000, 20_000
Array = NDArray[np.float64]


def paired_difference(
    ours: Mapping[int, float], base: Mapping[int, float], scale: Bounds = UNBOUNDED
) -> Estimate | None:
    """The mean of ``ours`` minus ``base`` over their common seeds; None if they have none.

    Pairing removes what a seed does to both rows alike, such as the order of the batches. The ends
    of the score's ``scale`` bound the difference.
    """
    pairs = [ours[seed] - base[seed] for seed in ours if seed in base]
    return estimate(pairs, (scale[0] - scale[1], scale[1] - scale[0]))


def share_interval(count: int, total: int) -> Bounds:
    """The exact 95 % confidence interval of a share, from ``count`` of ``total`` observations.

    Clopper and Pearson (1934), Biometrika 26, 404-413: the shares that a binomial test with 2.5 %
    on either side does not reject. It contains the true share in at least 95 % of samples.
    """
    error = (1 - CONFIDENCE) / 2
    low, high = 0.0, 1.0
    if count:  # the share at which so many or more have a probability of only 2.5 %
        low = _beta_quantile(error, count, total - count + 1)
    if count < total:
        high = _beta_quantile(1 - error, count + 1, total - count)
    return low, high


def _beta_quantile(probability: float, a: int, b: int) -> float:
    """The quantile of a beta distribution at ``probability``, by bisection."""
    low, high = 0.0, 1.0
    for _ in range(50):
        middle = (low + high) / 2
        if betainc(a, b, 0, middle, regularized=True) < probability:
            low = middle
        else:
            high = middle
    return (low + high) / 2


def required_seeds(difference: Estimate) -> int | None:
    """The number of seeds that would show the difference, if it and its spread are as observed.

    It is the smallest n for a paired t-test at two-sided 5 % with a power of 80 %:
    √n ≥ (t(0.975) + t(0.8)) · deviation / mean with n - 1 degrees of freedom (Zar 2010,
    Biostatistical Analysis, section 7.7), or with those that a pooled deviation has once this row
    and the base have n seeds. The exact n, by the noncentral t, is the same or one more. At least
    2; None for more than ``MAX_SEEDS``, or for a difference without a deviation.
    """
    deviation = difference.deviation
    if deviation is None or not difference.mean:
        return None

    def is_enough(count: int) -> bool:
        observed = difference.pooled_freedom or difference.count - 1
        freedom = max(1, observed + count - difference.count)
        errors = t_quantile((1 + CONFIDENCE) / 2, freedom) + t_quantile(POWER, freedom)
        return errors * deviation <= math.sqrt(count) * abs(difference.mean)

    counts = range(2, MAX_SEEDS + 1)
    place = bisect.bisect_left(counts, True, key=is_enough)
    return counts[place] if place < len(counts) else None


def rank_correlation(ours: Sequence[float], paper: Sequence[float]) -> float | None:
    """Spearman's correlation of two columns, with mean ranks for ties.

    None for fewer than three rows, or if all values of a column are equal.
    """
    if len(ours) < 3 or len(set(ours)) == 1 or len(set(paper)) == 1:
        return None
    return statistics.correlation(_ranks(ours), _ranks(paper))


def _ranks(values: Sequence[float]) -> list[float]:
    # statistics.correlation(method="ranked") needs Python 3.12.
    ordered = sorted(values)
    return [ordered.index(value) + (ordered.count(value) + 1) / 2 for value in values]


def correlation_interval(correlation: float, count: int) -> Bounds | None:
    """The 95 % confidence interval of a rank correlation over ``count`` rows, taken as a sample.

    Fisher's z with the standard error √((1 + r²/2) / (n - 3)) of Bonett and Wright (2000),
    Psychometrika 65, 23-28. (A bootstrap would draw some rows twice, which makes ties that the
    table does not have, and is too narrow for twenty rows.) For a perfect order, where z is
    infinite, the far end is that of the nearest imperfect order. None for fewer than four rows.
    """
    if count < 4:
        return None
    nearest = 1 - 12 / (count**3 - count)  # two neighbours swapped
    value = math.copysign(min(abs(correlation), nearest), correlation)
    error = math.sqrt((1 + value**2 / 2) / (count - 3))
    half = statistics.NormalDist().inv_cdf((1 + CONFIDENCE) / 2) * error
    low, high = math.tanh(math.atanh(value) - half), math.tanh(math.atanh(value) + half)
    if abs(correlation) > nearest:
        return (low, 1.0) if value > 0 else (-1.0, high)
    return low, high


@dataclass(frozen=True, slots=True)
class Pool:
    """The spread of a table's scores that remains after the effects of row and seed.

    ``deviation`` is the residual standard deviation with ``freedom`` degrees of freedom, and
    ``p_equal`` the p-value of a test that it is the same in all rows. With three seeds, the
    confidence interval of a single row has two degrees of freedom; pooled over twenty rows it has
    38.
    """

    deviation: float
    freedom: int
    p_equal: float

    @property
    def is_usable(self) -> bool:
        """True if the test does not reject that all rows have the same variance."""
        return self.p_equal >= 1 - CONFIDENCE

    def apply(self, paired: Estimate) -> Estimate:
        """A difference from the base, with the pooled deviation in place of its own if usable."""
        if not self.is_usable or not math.isfinite(paired.mean):
            return paired
        deviation = math.sqrt(2) * self.deviation
        return replace(paired, deviation=deviation, pooled_freedom=self.freedom)


def one_of_each(
    rows: Mapping[str, Mapping[int, float]], trainings: Mapping[str, Hashable]
) -> dict[str, Mapping[int, float]]:
    """From each training, the row with the most seeds, or the first of those.

    Rows of one training share its noise: a pool with all of them would have hardly any spread
    between them, and too many degrees of freedom. A single one of them spreads like a row that is
    trained alone; their mean would spread less.
    """
    chosen: dict[Hashable, str] = {}
    for name, values in rows.items():
        known = chosen.setdefault(trainings[name], name)
        if len(values) > len(rows[known]):
            chosen[trainings[name]] = name
    return {name: values for name, values in rows.items() if name in chosen.values()}


def pool(rows: Mapping[str, Mapping[int, float]]) -> Pool | None:
    """The spread of the residuals of the two-way model row + seed, fitted to ``rows`` by seed.

    Rows may lack seeds; a row with a value that is not finite is left out. None if no degree of
    freedom is left. Equal variances are tested with the largest of the rows' residual variances, as
    a share of all squares (Cochran's C), against the same share in simulated tables: residuals
    depend on each other, so textbook tests reject too often.
    """
    finite = _finite(rows)
    return _pool(finite, tuple((index, seed) for index, row in enumerate(finite) for seed in row))


def pool_within(rows: Mapping[str, Mapping[int, float]]) -> Pool | None:
    """As :func:`pool`, but with the model of rows alone: what a seed does to all rows is noise too.

    This is the spread between runs of one row that share no seed.
    """
    finite = _finite(rows)
    # The same seed for all of them adds no effect to that of the row.
    return _pool(finite, tuple((index, 0) for index, row in enumerate(finite) for _ in row))


def _finite(rows: Mapping[str, Mapping[int, float]]) -> list[Mapping[int, float]]:
    return [row for row in rows.values() if row and all(map(math.isfinite, row.values()))]


def _pool(finite: Sequence[Mapping[int, float]], cells: tuple[tuple[int, int], ...]) -> Pool | None:
    if not cells:
        return None
    basis, weights = _design(cells)
    freedom = len(cells) - basis.shape[1]
    if freedom < 1:
        return None
    observed = np.array([value for row in finite for value in row.values()])
    residuals = _residuals(basis, observed - observed.mean())
    # Where seeds agree to the last digit, only rounding errors are left.
    residuals[np.abs(residuals) < 1e-12 * np.abs(observed).max()] = 0
    deviation = math.sqrt((residuals**2).sum() / freedom)
    largest = _largest_share(weights, residuals) * (1 - 1e-9)
    as_large = int((_simulated(cells) >= largest).sum())
    return Pool(deviation, freedom, (as_large + 1) / (_TABLES + 1))


@functools.cache
def _design(cells: tuple[tuple[int, int], ...]) -> tuple[Array, Array]:
    """An orthonormal basis of what row + seed can fit, and weights for the rows' variances.

    Each cell of the table is a row's index and a seed. The basis has the shape (cells, rank). The
    weights, (cells, rows), turn squared residuals into variances, of those rows alone that are not
    fitted exactly.
    """
    row, seed = np.array(cells, dtype=int).T
    rows = (row[:, None] == np.unique(row)).astype(float)
    effects = np.hstack([rows, (seed[:, None] == np.unique(seed)).astype(float)])
    vectors, sizes, _ = np.linalg.svd(effects, full_matrices=False)
    basis = vectors[:, sizes > 1e-9]
    freedom = (1 - (basis**2).sum(axis=1)) @ rows
    left = freedom > 1e-9
    return basis, rows[:, left] / freedom[left]


def _residuals(basis: Array, values: Array) -> Array:
    """The residuals of one table's values, (cells,), or of several tables', (tables, cells)."""
    return values - values @ basis @ basis.T


def _largest_share(weights: Array, residuals: Array) -> Array:
    """The largest residual variance of a row as a share of all squares, for each table."""
    total = (residuals**2).sum(axis=-1)
    return (residuals**2 @ weights).max(axis=-1) / np.where(total == 0, 1, total)


@functools.cache
def _simulated(cells: tuple[tuple[int, int], ...]) -> Array:
    """The largest shares in simulated tables with these cells and normal values."""
    basis, weights = _design(cells)
    random = np.random.default_rng(0)
    shares: list[Array] = []
    for _ in range(20):  # in parts, to save memory
        normal = random.standard_normal((_TABLES // 20, len(cells)))
        shares.append(_largest_share(weights, _residuals(basis, normal)))
    return np.concatenate(shares)


@functools.cache
def dunnett(seeds: tuple[frozenset[int], ...], freedom: int) -> float:
    """The critical value of Dunnett's test, in standard errors, for a family-wise error of 5 %.

    It is the quantile of the largest |t| (Dunnett 1955), simulated to about 1 %. Unlike in the
    usual test, the samples are not independent: rows share seeds with the base.

    Args:
        seeds: for each training, the seeds that it shares with the base; trainings that have seeds
            in common are correlated through the base's runs, and rows of one training count as one
        freedom: degrees of freedom of the pooled deviation
    """
    sizes = [len(each) for each in seeds]
    shared = np.array([[len(one & other) for other in seeds] for one in seeds])
    correlation = shared / (2 * np.sqrt(np.outer(sizes, sizes)))
    np.fill_diagonal(correlation, 1.0)
    random = np.random.default_rng(0)
    normal = random.standard_normal((_DRAWS, len(seeds))) @ np.linalg.cholesky(correlation).T
    scale = np.sqrt(random.chisquare(freedom, _DRAWS) / freedom)
    return float(np.quantile(np.abs(normal).max(axis=1) / scale, CONFIDENCE))
