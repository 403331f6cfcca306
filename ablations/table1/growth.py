"""Exponents, growth of steps and crossings as the text of cells."""

from __future__ import annotations

from collections.abc import Callable
from statistics import median

from ablations.table1.fit import Slope, find_crossing, fit_exponent, fit_slope
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


def exponents(found: Measurements, name: str, cost: str) -> tuple[Slope | None, Slope | None]:
    """The exponents of n and of d in a layer's cost; None for one that cannot be fitted."""
    costs = {
        (n, d): COSTS[cost](point, name)
        for (d, n), point in found.points.items()
        if n >= LEAST_N and d >= LEAST_D and (cost == "FLOPs" or name in point.layers)
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
    for (width, n), point in sorted(found.points.items()):
        if width == d and cost == "FLOPs":
            ratios[n] = [point.flops[name] / point.flops[RECURRENT]]
        elif width == d and name in point.layers and RECURRENT in point.layers:
            pairs = zip(point.layers[name].samples, point.layers[RECURRENT].samples, strict=True)
            ratios[n] = [ours / theirs for ours, theirs in pairs]
    if not ratios:
        return formats.MISSING
    below, beyond = f"< {min(ratios):,}", f"> {max(ratios):,}"
    first, middle, last = find_crossing(ratios)
    if middle is None:
        return below if median(ratios[max(ratios)]) > 1 else beyond
    low = below if first is None else f"{first:,.0f}"
    high = beyond if last is None else f"{last:,.0f}"
    return f"{middle:,.0f}" + ("" if low == high else f" ({low} to {high})")
