"""How often ``try`` errs, by its own decisions: ``python -m tests.ablations.proposals.calibration``
prints the table of docs/results/calibration-try.md.
"""

from __future__ import annotations

import functools
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from ablations.proposals.decide import (
    PRIOR_RATIO,
    Spread,
    Verdict,
    decide,
    level_of,
    smallest_gain,
    spread_of,
)
from ablations.report.statistics import t_quantile

BASE = 10
UNIT = (0.9**0.5, -(0.9**0.5)) * 5  # a base whose variance is 1
PROPOSALS = 100
LOST = ABANDONED = 0.05


@dataclass(frozen=True, kw_only=True, slots=True)
class Shares:
    """In per cent: first proposals called better or worse, and series in which any is."""

    first_better: float
    first_worse: float
    any_better: float
    any_worse: float


@functools.cache
def null_series(seeds: int, ratio: float, series: int) -> Shares:
    """Series of proposals that change no mean but spread ``ratio`` times as much as the base.

    Each series draws its base. One in twenty seeds is lost for good; one in twenty proposals is
    left after its first seeds, as by a kill or for want of time, and counts as a look.
    """
    random = np.random.default_rng(100 * seeds + int(10 * ratio))
    verdicts = [_series(random, seeds, ratio) for _ in range(series)]

    def share(verdict: Verdict, count: int) -> float:
        return 100 * sum(verdict in found[:count] for found in verdicts) / series

    return Shares(
        first_better=share(Verdict.BETTER, 1),
        first_worse=share(Verdict.WORSE, 1),
        any_better=share(Verdict.BETTER, PROPOSALS),
        any_worse=share(Verdict.WORSE, PROPOSALS),
    )


def _series(random: np.random.Generator, seeds: int, ratio: float) -> list[Verdict]:
    base = tuple(random.standard_normal(BASE).tolist())
    scores = ratio * random.standard_normal((PROPOSALS, seeds))
    lost = random.random((PROPOSALS, seeds)) < LOST
    left = random.random(PROPOSALS) < ABANDONED
    earlier, verdicts = Spread(), list[Verdict]()
    for number in range(PROPOSALS):
        known = [None if gone else x for x, gone in zip(scores[number], lost[number], strict=True)]
        verdict, used = _try(base, known, earlier, number + 1, is_left=bool(left[number]))
        earlier += spread_of([used])
        verdicts.append(verdict)
    return verdicts


def _try(
    base: Sequence[float],
    scores: Sequence[float | None],
    earlier: Spread,
    look: int,
    *,
    is_left: bool,
) -> tuple[Verdict, tuple[float, ...]]:
    """The verdict on a proposal, None being a lost seed, and the scores that it used."""
    for count in dict.fromkeys((2, len(scores))):
        finished = tuple(float(x) for x in scores[:count] if x is not None)
        verdict = decide(
            base,
            finished,
            planned=len(scores),
            lost=count - len(finished),
            earlier=earlier,
            look=look,
        )
        if verdict is not None:
            return verdict, finished
        if is_left:
            return Verdict.NONE, finished
    raise AssertionError("no verdict on all seeds")


def base_alone(seeds: int, ratio: float, series: int) -> tuple[float, float]:
    """In per cent, how often Student's t with the base's spread alone calls a first proposal of
    nothing better, and any of a series.
    """
    random = np.random.default_rng(seeds)
    base = random.standard_normal((series, 1, BASE))
    ours = ratio * random.standard_normal((series, PROPOSALS, seeds))
    error = base.std(axis=2, ddof=1) * np.sqrt(1 / seeds + 1 / BASE)
    t = (ours.mean(axis=2) - base.mean(axis=2)) / error
    levels = [level_of(look) for look in range(1, PROPOSALS + 1)]
    better = t < -np.array([t_quantile(1 - level / 2, BASE - 1) for level in levels])
    return 100 * float(better[:, 0].mean()), 100 * float(better.any(axis=1).mean())


def power(seeds: int, look: int, series: int) -> float:
    """How often, in per cent, a proposal is called better that gains the smallest gain for its base
    and its ledger, where both spread as is assumed.
    """
    random, found = np.random.default_rng(look), 0
    for _ in range(series):
        base = tuple(random.standard_normal(BASE).tolist())
        others = PRIOR_RATIO * random.standard_normal((look - 1, seeds))
        earlier = spread_of(others.tolist())
        gain = smallest_gain(UNIT, seeds, earlier=_expected(look - 1, seeds), look=look)
        ours = tuple((PRIOR_RATIO * random.standard_normal(seeds) - gain).tolist())
        verdict = decide(base, ours, planned=seeds, earlier=earlier, look=look)
        found += verdict == Verdict.BETTER
    return 100 * found / series


def _expected(others: int, seeds: int) -> Spread:
    freedom = others * (seeds - 1)
    return Spread(PRIOR_RATIO**2 * freedom, freedom)


def main() -> None:
    """Print the table."""
    print(
        "| seeds | spread, of the base's | the first called better | any of 100 "
        "| the first called worse | any of 100 |"
    )
    print("|--:|--:|--:|--:|--:|--:|")
    for seeds in (2, 4):
        for ratio in (0.5, 1.0, 1.5, 2.0, 3.0):
            found = null_series(seeds, ratio, 4_000)
            figures = (found.first_better, found.any_better, found.first_worse, found.any_worse)
            print(f"| {seeds} | {ratio} | {' | '.join(f'{x:.1f}' for x in figures)} |", flush=True)
    print("with the base's spread alone:", base_alone(2, 2.0, 20_000))
    print(
        "power:", [(seeds, look, power(seeds, look, 4_000)) for seeds in (2, 4) for look in (1, 21)]
    )


if __name__ == "__main__":
    main()
