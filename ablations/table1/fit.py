"""Fit exponents of costs, and describe them."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from statistics import median

import numpy as np

from ablations.report.statistics import CONFIDENCE, t_quantile
from ablations.table1.measurements import Measurements, Point
from ablations.table1.paper import GROWTH, LEAST_D, LEAST_N, RECURRENT
from transformer import formats

# A slope whose interval rounds to nothing is shown without it.
_EXACT = 0.005

COSTS: dict[str, Callable[[Point, str], float]] = {
    "FLOPs": lambda point, name: point.flops[name],
    "time": lambda point, name: point.layers[name].seconds,
    "forward": lambda point, name: median(point.layers[name].forward),
    "backward": lambda point, name: median(point.layers[name].backward),
    "memory": lambda point, name: point.layers[name].memory,
}


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


def exponents(found: Measurements, name: str, cost: str) -> tuple[Slope | None, Slope | None]:
    """The exponents of n and of d in a layer's cost; None for one that cannot be fitted."""
    costs = {
        (n, d): COSTS[cost](point, name)
        for point in found.points
        if (n := point.n) >= LEAST_N and (d := point.d) >= LEAST_D
        if cost == "FLOPs" or name in point.layers
    }
    return fit_exponent(costs), fit_exponent({(d, n): each for (n, d), each in costs.items()})


def power(found: Measurements, name: str, cost: str) -> str:
    """The exponents as a product of powers: ``n^1.98·d^1.02``."""
    fitted = zip("nd", exponents(found, name, cost), strict=True)
    return "·".join(f"{letter}^{slope.value:.2f}" for letter, slope in fitted if slope)


def with_interval(slope: Slope | None) -> str:
    """A slope with its interval: ``1.98 ± 0.02``."""
    if slope is None:
        return formats.MISSING
    spread = "" if slope.half_width < _EXACT else f" ± {slope.half_width:.2f}"
    return f"{slope.value:.2f}{spread}"


def growth(found: Measurements, what: str, name: str, form: str) -> str:
    """The growth of a count of steps with n: a constant, or a line over a form such as ``n/r``."""
    counts = found.counts(what, name)
    if len(set(counts.values())) < 2:
        return str(next(iter(counts.values()), formats.MISSING))
    slope = fit_slope([[(GROWTH[form](n), steps) for n, steps in counts.items()]])
    if slope is None:
        return formats.MISSING
    rest = formats.difference(slope.intercept, 1)
    added = f" {rest[0]} {rest[1:]}" if rest[0] in "+\u2212" else ""
    return f"{slope.value:.2f}·{form}{added}"


def crossing(found: Measurements, name: str, d: int, cost: str) -> str:
    """The length from which a layer costs more than the LSTM, with its range over the samples, or
    the side of the measured lengths on which it lies.
    """
    ratios: dict[int, list[float]] = {}
    for point in (x for x in found.points if x.d == d):
        layers = point.layers
        if cost == "FLOPs":
            ratios[point.n] = [point.flops[name] / point.flops[RECURRENT]]
        elif name in layers and RECURRENT in layers:
            pairs = zip(layers[name].samples, layers[RECURRENT].samples, strict=True)
            ratios[point.n] = [ours / theirs for ours, theirs in pairs]
    if not ratios:
        return formats.MISSING
    below, beyond = f"< {min(ratios):,}", f"> {max(ratios):,}"
    first, middle, last = find_crossing(ratios)
    if middle is None:
        return below if median(ratios[max(ratios)]) > 1 else beyond
    low = below if first is None else f"{first:,.0f}"
    high = beyond if last is None else f"{last:,.0f}"
    return f"{middle:,.0f}" + ("" if low == high else f" ({low} to {high})")
