"""Exponents of power laws, straight lines, and where two costs are equal."""

from __future__ import annotations

import math
import statistics
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise

from ablations.report.statistics import CONFIDENCE, t_quantile

Pair = tuple[float, float]


@dataclass(frozen=True, slots=True)
class Slope:
    """A slope with its 95 % interval, and the intercept of the only or the mean group."""

    value: float
    half_width: float
    intercept: float


def fit_slope(groups: Iterable[Sequence[Pair]]) -> Slope | None:
    """The common slope of several groups of points, each with an intercept of its own.

    Least squares; the interval is Student's, from the residuals, and so takes what differs from a
    straight line for noise. None if fewer than three points are left after the intercepts.
    """
    used = [group for group in groups if len(group) > 1]
    freedom = sum(len(group) - 1 for group in used) - 1
    if freedom < 1:
        return None
    means = [tuple(map(statistics.fmean, zip(*group, strict=True))) for group in used]
    centred = [
        (x - mean_x, y - mean_y)
        for group, (mean_x, mean_y) in zip(used, means, strict=True)
        for x, y in group
    ]
    spread = sum(x * x for x, _ in centred)
    slope = sum(x * y for x, y in centred) / spread
    residual = sum((y - slope * x) ** 2 for x, y in centred) / freedom
    half = t_quantile((1 + CONFIDENCE) / 2, freedom) * math.sqrt(residual / spread)
    intercept = statistics.fmean(mean_y - slope * mean_x for mean_x, mean_y in means)
    return Slope(slope, half, intercept)


def fit_exponent(costs: Mapping[tuple[int, int], float]) -> Slope | None:
    """The exponent with which a cost grows with its first key, at each value of the second.

    Example:
        >>> fit_exponent({(n, d): 5 * n**2 * d for n in (1, 2, 4) for d in (1, 3)}).value
        2.0
    """
    groups: dict[float, list[Pair]] = {}
    for (size, held), cost in costs.items():
        groups.setdefault(held, []).append((math.log(size), math.log(cost)))
    return fit_slope(groups.values())


@dataclass(frozen=True, slots=True)
class Crossing:
    """The length from which one cost exceeds another, and the range that the samples allow.

    ``low`` and ``high`` are None where the range goes beyond the lengths measured.
    """

    n: float
    low: float | None
    high: float | None


def find_crossing(ratios: Mapping[int, Sequence[float]]) -> Crossing | None:
    """Where the ratio of two costs rises above 1, by length; None if it does not, or always is.

    The length is interpolated between those measured, on logarithmic axes, for the median of the
    samples at each length, and for their quartiles as the range.
    """
    quartiles = {
        n: statistics.quantiles(x, n=4) if len(x) > 1 else [x[0]] * 3 for n, x in ratios.items()
    }
    high, middle, low = (
        _rises_above_one([(n, found[index]) for n, found in sorted(quartiles.items())])
        for index in range(3)
    )
    return None if middle is None else Crossing(middle, low, high)


def _rises_above_one(line: Sequence[Pair]) -> float | None:
    """The last length at which a line on logarithmic axes rises above 1."""
    found = None
    for (n, before), (longer, after) in pairwise(line):
        if before < 1 <= after:
            share = math.log(1 / before) / math.log(after / before)
            found = n * (longer / n) ** share
    return found
