"""Time of runs, judged by runs whose time is known."""

from __future__ import annotations

import heapq
import statistics
from collections.abc import Sequence
from dataclasses import dataclass

from transformer.config import Config
from transformer.evaluation.counts import step_flops


@dataclass(frozen=True, slots=True)
class Timing:
    """Seconds that a run of ``config`` took, or will have taken, on one device."""

    config: Config
    seconds: float


def predict(config: Config, known: Sequence[Timing]) -> float | None:
    """Seconds that a run of ``config`` takes; None if nothing is known.

    A step takes a fixed time plus a time per FLOP, both fitted to the known runs: in small models
    the fixed part outweighs the other.
    """
    if not known:
        return None
    flops = [step_flops(timing.config) for timing in known]
    seconds = [timing.seconds / timing.config.training.max_steps for timing in known]
    steps = config.training.max_steps
    if len(set(flops)) > 1:
        line = statistics.linear_regression(flops, seconds)
        if line.slope >= 0 and line.intercept >= 0:
            return steps * (line.intercept + line.slope * step_flops(config))
        if line.slope < 0:
            return steps * statistics.fmean(seconds)
    return steps * step_flops(config) * sum(seconds) / sum(flops)


def until_the_last(running: Sequence[float], waiting: Sequence[float], places: int) -> float:
    """Seconds until the last run ends, if each free place takes the next of ``waiting``.

    Args:
        running: seconds that the runs in progress still need
        waiting: seconds that each of the others takes
    """
    free = [*running, *[0.0] * (places - len(running))]
    heapq.heapify(free)
    for seconds in waiting:
        heapq.heapreplace(free, free[0] + seconds)
    return max(free)
