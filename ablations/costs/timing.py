"""How long the rest of a table takes, judged by the runs that are done or under way."""

from __future__ import annotations

import heapq
import statistics
from collections.abc import Sequence
from dataclasses import dataclass

from transformer.config import Config
from transformer.evaluation.counts import training_flops


@dataclass(frozen=True, slots=True)
class Timing:
    """What one run of ``config`` took, or will have taken, in seconds from start to end."""

    config: Config
    seconds: float


def step_work(config: Config) -> float:
    """FLOPs of one training step."""
    return training_flops(config.model, config.data.tokens_per_batch, config.data.tokens_per_batch)


def work(config: Config) -> float:
    """FLOPs of a whole run, by which the longest is started first."""
    return step_work(config) * config.training.max_steps


def predict(config: Config, known: Sequence[Timing]) -> float | None:
    """Seconds that a run of ``config`` takes; None while nothing is known.

    A step takes a fixed time and one for each FLOP; the two are fitted to what is known, as
    in small models the first outweighs the second.
    """
    if not known:
        return None
    works = [step_work(timing.config) for timing in known]
    seconds = [timing.seconds / timing.config.training.max_steps for timing in known]
    steps = config.training.max_steps
    if len(set(works)) > 1:
        line = statistics.linear_regression(works, seconds)
        if line.slope >= 0 and line.intercept >= 0:
            return steps * (line.intercept + line.slope * step_work(config))
        if line.slope < 0:
            return steps * statistics.fmean(seconds)
    return steps * step_work(config) * sum(seconds) / sum(works)


def time_left(
    running: Sequence[float], waiting: Sequence[Config], known: Sequence[Timing], workers: int
) -> float | None:
    """Seconds until the last run ends; None while nothing is known. As :func:`until_the_last`,
    with the configurations of what waits.
    """
    seconds = [predict(config, known) for config in waiting]
    expected = [value for value in seconds if value is not None]
    return until_the_last(running, expected, workers) if len(expected) == len(seconds) else None


def until_the_last(running: Sequence[float], waiting: Sequence[float], workers: int) -> float:
    """Seconds until the last run ends, with ``waiting`` taken in order by whoever is free.

    ``running`` are the seconds that the runs under way still need, ``waiting`` those that the
    others take.
    """
    free = [*running, *[0.0] * (workers - len(running))]
    heapq.heapify(free)
    for seconds in waiting:
        heapq.heapreplace(free, free[0] + seconds)
    return max(free)
