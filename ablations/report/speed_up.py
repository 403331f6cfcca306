"""The effective speed-up of a row, from validation curves."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from statistics import fmean

from ablations.report.statistics import Estimate
from experiments.records.run import Run
from transformer.config import Config
from transformer.training.optimizer import learning_rate

SPEED_MEASURE = "perplexity"  # the measure of validation curves
Points = Mapping[int, float]  # values by step

# The paper's inverse square root ends at a fifth of its peak, a cosine or a straight line at 0.
_LEAST_LAST_RATE = 0.1


@dataclass(frozen=True, slots=True)
class Speed:
    """How many times as fast; ``bound`` is "<" or ">" if ``value`` is only a bound, else empty."""

    value: float
    bound: str = ""

    @property
    def known(self) -> float | None:
        """The value; None if it is only a bound."""
        return None if self.bound else self.value

    def __truediv__(self, ratio: float) -> Speed:
        return Speed(self.value / ratio, self.bound)

    def __str__(self) -> str:
        if self.bound:
            return f"{self.bound} {self.value:.3g}"
        return f"{self.value:.2f}"


@dataclass(frozen=True, slots=True)
class SpeedUp:
    """The base's steps to a perplexity over a row's, and the 95 % confidence interval.

    The perplexity is the worse of their two final ones; the speed-up is below 1 for a worse row.
    ``interval`` is None if the difference in perplexity has no confidence interval.
    """

    mean: Speed
    interval: tuple[Speed, Speed] | None


@dataclass(frozen=True, slots=True)
class Curve:
    """A row's mean validation curve, and whether its learning rate ends near 0 (``ends``)."""

    points: Points
    ends: bool

    @property
    def last(self) -> float:
        """The final perplexity."""
        return self.points[max(self.points)]

    def scaled(self, last: float) -> Curve:
        """The same curve, multiplied so that its final perplexity is ``last``."""
        factor = last / self.last
        return Curve({step: value * factor for step, value in self.points.items()}, self.ends)


def mean_curve(runs: Sequence[Run], config: Config) -> Curve | None:
    """The geometric mean of finished runs' curves, at the steps that all of them have.

    None if a run has no curve, was scored with other weights than its last ones, or has a value
    in its curve that is no perplexity.
    """
    curves = [run.curve for run in runs]
    for run, curve in zip(runs, curves, strict=True):
        if run.result is None or not curve:
            return None
        if not all(0 < value < math.inf for value in curve.values()):
            return None
        # Averaged weights differ much from the last ones, rounding in other batches only slightly.
        if not math.isclose(curve[max(curve)], run.result.perplexity, rel_tol=1e-3):
            return None
    points: dict[int, float] = {}
    for step in sorted(set.intersection(*map(set, curves))):
        points[step] = math.exp(fmean(math.log(curve[step]) for curve in curves))
    return Curve(points, ends_at_last_step(_rates(runs[0], config)))


def _rates(run: Run, config: Config) -> Points:
    """The learning rate at its peak and at the end; for a method, which may have its own schedule,
    the recorded ones.
    """
    training = config.training
    if training.method is not None:
        return run.learning_rates
    steps = (min(training.warmup_steps, training.max_steps), training.max_steps)
    return {step: learning_rate(step, config.model.d_model, training) for step in steps}


def ends_at_last_step(rates: Points) -> bool:
    """Whether the learning rate has decayed to nearly zero at the last step."""
    return bool(rates) and rates[max(rates)] < _LEAST_LAST_RATE * max(rates.values())


def speed_up(base: Curve, row: Curve, difference: Estimate) -> SpeedUp | None:
    """The speed-up of a row whose final perplexity differs from the base's by ``difference``; None
    if the base's learning rate decays to nearly zero, as at ``quick``.

    The ends of its confidence interval are the speed-ups of the row's curve, scaled to the final
    perplexities at the ends of the difference's interval. So it contains 1 if the row is within
    noise.
    """
    if base.ends:
        return None

    def speed(by: float) -> Speed:
        last = max(base.last + by, 1.0 + 1e-9)  # no perplexity is below 1
        return _speed(base, row.scaled(last))

    mean = speed(difference.mean)
    if difference.interval is None:
        return SpeedUp(mean, None)
    better, worse = difference.interval
    return SpeedUp(mean, (speed(worse), speed(better)))


def _speed(base: Curve, row: Curve) -> Speed:
    """The steps to the worse of the two final perplexities: the base's over the row's."""
    worse, better = (row, base) if row.last > base.last else (base, row)
    if worse.last == better.last:
        return Speed(max(base.points) / max(row.points))
    is_slower = worse is row
    if row.ends and not is_slower:
        # Its earlier perplexities are from a learning rate that had yet to fall.
        return Speed(max(base.points) / max(row.points), ">")
    steps, is_first = _steps_to(better.points, worse.last)
    whole = max(worse.points)
    value = steps / whole if is_slower else whole / steps
    bound = ""
    if is_first:
        bound = "<" if is_slower else ">"
    return Speed(value, bound)


def _steps_to(curve: Points, perplexity: float) -> tuple[float, bool]:
    """The step at which a curve first is as low as ``perplexity``, and whether that is already so
    at its first point.

    Between validations the logarithm of perplexity is interpolated linearly.
    """
    steps = sorted(curve)
    before = steps[0]
    if curve[before] <= perplexity:
        return before, True
    for step in steps[1:]:
        if curve[step] <= perplexity:
            fall = math.log(curve[before] / curve[step])
            share = math.log(curve[before] / perplexity) / fall
            return before + share * (step - before), False
        before = step
    raise ValueError("a curve that ends above the perplexity")
