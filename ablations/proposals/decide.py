"""Decide whether a proposal is better than its base.

Scores are logarithms of perplexity: rows whose perplexities are far apart spread alike in them. The
k-th look of a ledger is at the two-sided level 0.05 / (k (k + 1)). These levels add up to 0.05 over
any number of proposals (Bonferroni's inequality), however they depend on each other through the
base that they share, so that in at most 5 % of ledgers a change of nothing is called better.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from enum import StrEnum

from ablations.report.statistics import POWER
from experiments.records.estimate import t_quantile, t_tail

ERROR = 0.05
# A proposal is taken to spread so much more than the base until the ledger says otherwise. At small
# the rows of Table 3 and of the changes since 2017 spread by 0.8 %, their base by 0.3 %.
PRIOR_RATIO = 2.0


class Verdict(StrEnum):
    """What is said of a proposal, as the ledger spells it."""

    BETTER = "better"
    WORSE = "worse"
    SAME = "no difference"
    NONE = "no verdict"


def level_of(look: int) -> float:
    """The two-sided level of the look of this number, counted from 1."""
    return ERROR / (look * (look + 1))


@dataclass(frozen=True, slots=True)
class Spread:
    """The ``squares`` of scores around the means of their proposals, with ``freedom`` degrees."""

    squares: float = 0.0
    freedom: int = 0

    def __add__(self, other: Spread) -> Spread:
        return Spread(self.squares + other.squares, self.freedom + other.freedom)


def spread_of(proposals: Iterable[Sequence[float]]) -> Spread:
    """The spread within proposals, of each its scores by seed."""
    found = Spread()
    for scores in proposals:
        if len(scores) > 1:
            mean = statistics.fmean(scores)
            squares = sum((score - mean) ** 2 for score in scores)
            found += Spread(squares, len(scores) - 1)
    return found


@dataclass(frozen=True, kw_only=True, slots=True)
class Comparison:
    """The ``difference`` of a proposal's mean score from the base's, below 0 if it gains."""

    difference: float
    standard_error: float
    freedom: int
    level: float

    @property
    def is_significant(self) -> bool:
        """Whether the interval is on one side of 0."""
        least = statistics.NormalDist().inv_cdf(1 - self.level / 2)  # Student's t is wider
        size = abs(self.difference)
        return size > least * self.standard_error and size > self._critical * self.standard_error

    @property
    def interval(self) -> tuple[float, float]:
        """The interval of the difference that holds with 1 - ``level``."""
        half = self._critical * self.standard_error
        return self.difference - half, self.difference + half

    @property
    def p(self) -> float:
        """The two-sided p value, to be compared with ``level``."""
        if self.standard_error == 0:  # all scores are equal
            return float(self.difference == 0)
        return float(2 * t_tail(abs(self.difference) / self.standard_error, self.freedom))

    @property
    def smallest_gain(self) -> float:
        """The gain that this test would see with a power of 80 %, in the score's units."""
        return (self._critical + t_quantile(POWER, self.freedom)) * self.standard_error

    @property
    def _critical(self) -> float:
        return t_quantile(1 - self.level / 2, self.freedom)


def compare(
    base: Sequence[float], ours: Sequence[float], *, earlier: Spread, look: int
) -> Comparison:
    """Student's t of the mean of a proposal's n seeds less that of the base's m.

    The standard error is √(s² / n + s_base² / m). s pools the squares of this proposal, those of
    ``earlier`` ones, and ``PRIOR_RATIO``² times the base's: with the base's spread alone, a
    proposal that spreads twice as much would be called better in 9 % of first proposals.
    """
    difference = statistics.fmean(ours) - statistics.fmean(base)
    return _comparison(base, difference, len(ours), spread_of([ours]) + earlier, look)


def _comparison(
    base: Sequence[float], difference: float, seeds: int, ours: Spread, look: int
) -> Comparison:
    of_base = spread_of([base])
    own = _with_prior(of_base, ours)
    variance = own.squares / own.freedom / seeds + of_base.squares / of_base.freedom / len(base)
    return Comparison(
        difference=difference,
        standard_error=math.sqrt(variance),
        freedom=own.freedom,
        level=level_of(look),
    )


def _with_prior(of_base: Spread, ours: Spread) -> Spread:
    return ours + Spread(PRIOR_RATIO**2 * of_base.squares, of_base.freedom)


def smallest_gain(
    base: Sequence[float], seeds: int, *, earlier: Spread, look: int, more: int = 0
) -> float:
    """The gain that a proposal of so many ``seeds`` shows with a power of 80 %.

    Args:
        earlier: the spread within earlier proposals, which this and later ones are taken to have
        look: how many proposals were tested, with this one
        more: after so many more proposals
    """
    known = _with_prior(spread_of([base]), earlier)
    freedom = (more + 1) * (seeds - 1)
    ours = earlier + Spread(known.squares / known.freedom * freedom, freedom)
    return _comparison(base, 0.0, seeds, ours, look + more).smallest_gain


def decide(
    base: Sequence[float],
    ours: Sequence[float],
    *,
    planned: int,
    lost: int = 0,
    has_diverged: bool = False,
    earlier: Spread = Spread(),
    look: int,
) -> Verdict | None:
    """The verdict on the scores that a proposal has so far; None while it needs more seeds.

    Only "worse" may come before all seeds are finished, or lost for good: an early end cannot make
    "better" more likely.

    Args:
        base: finite scores of at least two seeds
        ours: those of the proposal's finished seeds
        planned: how many seeds the proposal gets
        lost: how many of them failed for other reasons than that they diverged
        has_diverged: whether one diverged, or has a perplexity that is not finite
        earlier: the spread within earlier proposals
        look: how many proposals were tested, with this one
    """
    if has_diverged:
        return Verdict.WORSE
    is_complete = len(ours) + lost >= planned
    if not ours:
        return Verdict.NONE if is_complete else None
    found = compare(base, ours, earlier=earlier, look=look)
    if found.is_significant and found.difference > 0:
        return Verdict.WORSE
    if not is_complete:
        return None
    return Verdict.BETTER if found.is_significant else Verdict.SAME
