"""The spread between seeds pooled over a table's rows, and Dunnett's comparison with the base.

Three seeds leave the interval of a single row two degrees of freedom, twenty rows of them 38.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Mapping
from dataclasses import dataclass

from ablations.report.estimates import CONFIDENCE, Difference

_DRAWS = 100_000
# numpy and scipy.special are imported where they are needed: together they take 0.65 s, twice as
# long as the whole report of a table with one seed, which needs neither.


@dataclass(frozen=True, slots=True)
class Pool:
    """What is left of a table's figures after the effects of row and seed.

    ``deviation`` is the residual standard deviation with ``freedom`` degrees of freedom, and
    ``p_equal`` the p value of Bartlett's test that it is the same in all rows.
    """

    deviation: float
    freedom: int
    p_equal: float

    @property
    def is_usable(self) -> bool:
        """Whether the test does not reject that all rows have one variance."""
        return self.p_equal >= 1 - CONFIDENCE

    def widen(self, paired: Difference) -> Difference:
        """A row less the base, with the pooled deviation in place of its own."""
        return Difference(paired.mean, math.sqrt(2) * self.deviation, paired.count, self.freedom)


def pool(rows: Mapping[str, Mapping[int, float]]) -> Pool | None:
    """The residuals of the two-way model row + seed, fitted to ``rows`` (values by seed).

    Rows may lack seeds; one with a value that is not finite is left out. None where no degree of
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
    from scipy.special import chdtrc  # scipy.stats.bartlett would take 2 s to import

    squares, freedom = (sum(column) for column in zip(*groups, strict=True))
    if len(groups) < 2 or not squares:
        return 1.0
    tiny = squares * 1e-12  # seeds that agree to the last digit have no logarithm
    spread = sum(n * math.log(max(square, tiny) / n) for square, n in groups)
    excess = freedom * math.log(squares / freedom) - spread
    correction = 1 + (sum(1 / n for _, n in groups) - 1 / freedom) / (3 * (len(groups) - 1))
    return float(chdtrc(len(groups) - 1, max(0.0, excess) / correction))


@functools.cache
def dunnett(seeds: tuple[frozenset[int], ...], freedom: int) -> float:
    """How many standard errors hold all differences to one base at once, in 95 % of tables.

    The quantile of the largest |t| (Dunnett 1955), by simulation to about 0.02.

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
