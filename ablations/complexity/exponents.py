"""What the measurements say about growth: exponents, forms of growth and crossings, as tables."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from statistics import median

from ablations.complexity.fit import Crossing, Slope, find_crossing, fit_exponent, fit_slope
from ablations.complexity.paper import (
    ATTENTION,
    GROWTH,
    KINDS,
    PROJECTED,
    RECURRENT,
    STEP_LENGTHS,
    WIDTHS,
)
from ablations.complexity.results import Measurements, Point, Timing
from ablations.report.layout import Column, Grid
from transformer import formats

# The asymptotic range: below it calls and small products take most of the time.
LEAST_N, LEAST_D = 256, 128
# A slope whose interval rounds to nothing is shown without it.
_EXACT = 0.005

Cost = Callable[[Point, str], float]


def of_timing(cost: Callable[[Timing], float]) -> Cost:
    """A cost of a layer at a point, by its timing there."""
    return lambda point, name: cost(point.layers[name])


COSTS: dict[str, Cost] = {
    "FLOPs": lambda point, name: point.flops[name],
    "time": of_timing(lambda timing: timing.seconds),
    "forward": of_timing(lambda timing: median(timing.forward)),
    "backward": of_timing(lambda timing: median(timing.backward)),
    "memory": of_timing(lambda timing: timing.memory),
}


def exponents(found: Measurements, name: str, cost: str) -> tuple[Slope | None, Slope | None]:
    """The exponents of n and of d in a layer's cost; None for one that cannot be fitted."""
    costs = {
        (point.n, point.d): COSTS[cost](point, name)
        for point in found.points.values()
        if point.n >= LEAST_N and point.d >= LEAST_D
        and (cost == "FLOPs" or name in point.layers)
    }  # fmt: skip
    return fit_exponent(costs), fit_exponent({(d, n): each for (n, d), each in costs.items()})


def power(found: Measurements, name: str, cost: str) -> str:
    """The exponents as a product of powers, such as ``n^1.98·d^1.02``."""
    fitted = zip("nd", exponents(found, name, cost), strict=True)
    return "·".join(f"{letter}^{slope.value:.2f}" for letter, slope in fitted if slope)


def exponents_grids(found: Measurements) -> list[Grid]:
    """The exponents of every cost with their intervals, next to the paper's: over n, and over d."""
    kinds = KINDS if found.points else ()
    grids: list[Grid] = []
    for index, letter in enumerate("nd"):
        powers = [kind.powers[index] for kind in kinds]
        columns = [Column(f"exponent of {letter}", [kind.name for kind in kinds])]
        paper = ["" if power is None else str(power) for power in powers]
        columns.append(Column("paper", paper, style="theirs"))
        for cost in COSTS:
            slopes = [exponents(found, kind.name, cost)[index] for kind in kinds]
            columns.append(Column(cost, [_with_interval(slope) for slope in slopes]))
        grids.append(Grid(columns))
    return grids


def growth(found: Measurements, what: str, name: str, form: str, *, interval: bool = False) -> str:
    """How a count of steps grows with n: its value if that is constant, else a straight line.

    The line is over the paper's ``form``, such as ``n/r``; its slope may be shown with an interval.
    """
    counts = _counts(found, what, name)
    if len(set(counts.values())) < 2:
        return str(next(iter(counts.values()), formats.MISSING))
    slope = fit_slope([[(GROWTH[form](n), steps) for n, steps in counts.items()]])
    if slope is None:
        return formats.MISSING
    factor = _with_interval(slope) if interval else f"{slope.value:.2f}"
    rest = formats.difference(slope.intercept, 1)
    added = f" {rest[0]} {rest[1:]}" if rest[0] in "+\u2212" else ""
    return f"{f'({factor})' if '±' in factor else factor}·{form}{added}"


def steps_grid(found: Measurements) -> Grid:
    """Every count of dependent steps by length, and how it grows."""
    heads = ["count", *(f"n = {n:,}" for n in STEP_LENGTHS), "growth"]
    kinds = [("sequential", kind.name, kind.sequential) for kind in KINDS]
    kinds += [("path", *path) for kind in KINDS for path in kind.paths]
    words = {"sequential": "operations", "path": "path"}
    rows = [
        (
            f"{words[what]}, {name}",
            *(formats.count(counts[n]) if n in counts else formats.MISSING for n in STEP_LENGTHS),
            growth(found, what, name, form, interval=True),
        )
        for what, name, form in kinds
        if (counts := _counts(found, what, name))
    ]
    return Grid.of(heads, rows)


def _counts(found: Measurements, what: str, name: str) -> dict[int, int]:
    return {n: steps for (kind, x, n), steps in found.steps.items() if (kind, x) == (what, name)}


def crossings(found: Measurements) -> Grid:
    """For each d, the length from which attention is slower than the LSTM."""
    widths = WIDTHS if found.points else ()
    columns = [Column("d", [f"{d:,}" for d in widths])]
    for name, prefix in ((ATTENTION, ""), (PROJECTED, "with projections, ")):
        for cost, style in (("FLOPs", ""), ("time", "ours")):
            cells = [_crossing(found, name, d, cost) for d in widths]
            columns.append(Column(f"{prefix}by {cost}", cells, style=style))
    return Grid(columns)


def _crossing(found: Measurements, name: str, d: int, cost: str) -> str:
    ratios: dict[int, list[float]] = {}
    for (width, n), point in sorted(found.points.items()):
        if width != d:
            continue
        if cost == "FLOPs":
            ratios[n] = [point.flops[name] / point.flops[RECURRENT]]
        elif name in point.layers and RECURRENT in point.layers:
            pair = zip(point.layers[name].samples, point.layers[RECURRENT].samples, strict=True)
            ratios[n] = [ours / theirs for ours, theirs in pair]
    return _describe(find_crossing(ratios), ratios)


def _describe(crossing: Crossing | None, ratios: Mapping[int, Sequence[float]]) -> str:
    """A length with its range, or on which side of the lengths measured it lies."""
    if not ratios:
        return formats.MISSING
    below, beyond = f"< {min(ratios):,}", f"> {max(ratios):,}"
    if crossing is None:
        return below if median(ratios[max(ratios)]) > 1 else beyond
    low = below if crossing.low is None else f"{crossing.low:,.0f}"
    high = beyond if crossing.high is None else f"{crossing.high:,.0f}"
    return f"{crossing.n:,.0f}" + ("" if low == high else f" ({low} to {high})")


def _with_interval(slope: Slope | None) -> str:
    if slope is None:
        return formats.MISSING
    spread = "" if slope.half_width < _EXACT else f" ± {slope.half_width:.2f}"
    return f"{slope.value:.2f}{spread}"
