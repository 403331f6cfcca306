"""Exponents of power laws, and where two costs are equal."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise

import numpy as np

from ablations.report.statistics import CONFIDENCE, t_quantile


@dataclass(frozen=True, slots=True)
class Slope:
    """A slope with its 95 % interval, and the intercept of the only or the mean group."""

    value: float
    half_width: float
    intercept: float


def fit_slope(groups: Iterable[Sequence[tuple[float, float]]]) -> Slope | None:
    """The common slope of several groups of points, each with an intercept of its own.

    Least squares; the interval is Student's, from the residuals, and so takes any bend for noise.
    None if fewer than three points are left after the intercepts.
    """
    points = [np.array(group) for group in groups if len(group) > 1]
    freedom = sum(len(group) - 1 for group in points) - 1
    if freedom < 1:
        return None
    x, y = np.concatenate([group - group.mean(axis=0) for group in points]).T
    slope = float(x @ y / (x @ x))
    error = math.sqrt(((y - slope * x) ** 2).sum() / freedom / (x @ x))
    middle_x, middle_y = np.mean([group.mean(axis=0) for group in points], axis=0)
    half_width = t_quantile((1 + CONFIDENCE) / 2, freedom) * error
    return Slope(slope, half_width, float(middle_y - slope * middle_x))


def fit_exponent(costs: Mapping[tuple[int, int], float]) -> Slope | None:
    """The exponent with which a cost grows with its first key, at each value of the second.

    Example:
        >>> fit_exponent({(n, d): 5 * n**2 * d for n in (1, 2, 4) for d in (1, 3)}).value
        2.0
    """
    groups: dict[int, list[tuple[float, float]]] = {}
    for (size, held), cost in costs.items():
        groups.setdefault(held, []).append((math.log(size), math.log(cost)))
    return fit_slope(groups.values())


def find_crossing(ratios: Mapping[int, Sequence[float]]) -> list[float | None]:
    """The lengths at which the upper quartile, the median and the lower quartile of the ratios of
    two costs rise above 1 for the last time; None for what does not, or is above at all lengths.

    They are interpolated between the lengths measured, on logarithmic axes.
    """
    lengths = sorted(ratios)
    found: list[float | None] = []
    for share in (0.75, 0.5, 0.25):
        line = [float(np.quantile(ratios[n], share, method="weibull")) for n in lengths]
        rises = [
            n * (longer / n) ** (math.log(1 / before) / math.log(after / before))
            for (n, before), (longer, after) in pairwise(zip(lengths, line, strict=True))
            if before < 1 <= after
        ]
        found.append(rises[-1] if rises else None)
    return found
