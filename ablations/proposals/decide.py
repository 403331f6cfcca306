"""Decide whether a proposal is better than its base.

Scores are logarithms of perplexity, in which rows spread alike even if their perplexities are far
apart. The k-th test of a ledger (its k-th look) is at the two-sided level 0.05 / (k (k + 1)). Over
any number of proposals these levels add up to at most 0.05 (Bonferroni's inequality, which holds
although all proposals share a base), so in at most 5 % of ledgers a change without an effect is
called better.
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
# How much more than the base a proposal is assumed to spread, until the ledger says otherwise. At
# small, the rows of Table 3 and of the changes since 2017 spread by 0.8 %, their base by 0.3 %.
PRIOR_RATIO = 2.0


class Verdict(StrEnum):
    """The verdict on a proposal, as the ledger spells it."""

    BETTER = "better"
    WORSE = "worse"
    SAME = "no difference"
    NONE = "no verdict"


def level_of(look: int) -> float:
    """The two-sided level of the ``look``-th test of a ledger, counted from 1."""
    return ERROR / (look * (look + 1))


@dataclass(frozen=True, slots=True)
class Spread:
    """The sum of ``squares`` around the proposals' means, and its degrees of ``freedom``."""

    squares: float = 0.0
    freedom: int = 0

    def __add__(self, other: Spread) -> Spread:
        return Spread(self.squares + other.squares, self.freedom + other.freedom)


def spread_of(proposals: Iterable[Sequence[float]]) -> Spread:
    """The spread of scores within ``proposals``, each given by its scores."""
    found = Spread()
    for scores in proposals:
        if len(scores) > 1:
            mean = statistics.fmean(scores)
            squares = sum((score - mean) ** 2 for score in scores)
            found += Spread(squares, len(scores) - 1)
    return found


@dataclass(frozen=True, kw_only=True, slots=True)
class Comparison:
    """The ``difference`` of a proposal's mean score from the base's, below 0 for a gain."""

    difference: float
    standard_error: float
    freedom: int
    level: float

    @property
    def is_significant(self) -> bool:
        """Whether the confidence interval excludes 0."""
        least = statistics.NormalDist().inv_cdf(1 - self.level / 2)  # quick, and below Student's t
        size = abs(self.difference)
        return size > least * self.standard_error and size > self._critical * self.standard_error

    @property
    def interval(self) -> tuple[float, float]:
        """The confidence interval of the difference, at a confidence of 1 - ``level``."""
        half = self._critical * self.standard_error
        return self.difference - half, self.difference + half

    @property
    def p(self) -> float:
        """The two-sided p-value, to be compared with ``level``."""
        if self.standard_error == 0:  # neither the proposal nor the base spreads
            return float(self.difference == 0)
        return float(2 * t_tail(abs(self.difference) / self.standard_error, self.freedom))

    @property
    def smallest_gain(self) -> float:
        """The gain that this test would find with a power of 80 %, in the score's units."""
        return (self._critical + t_quantile(POWER, self.freedom)) * self.standard_error

    @property
    def _critical(self) -> float:
        return t_quantile(1 - self.level / 2, self.freedom)


def compare(
    base: Sequence[float], ours: Sequence[float], *, earlier: Spread, look: int
) -> Comparison:
    """Student's t of the mean over a proposal's n seeds minus that over the base's m.

    The standard error is √(s² / n + s_base² / m). s pools the squares of this proposal, those of
    ``earlier`` ones, and ``PRIOR_RATIO``² times the base's. With the base's spread alone, 9 % of
    first proposals that spread twice as much as the base would be called better by chance.
    """
    difference = statistics.fmean(ours) - statistics.fmean(base)
    return _comparison(base, difference, len(ours), spread_of([ours]) + earlier, look)


def _comparison(
    base: Sequence[float], difference: float, seeds: int, ours: Spread, look: int
) -> Comparison:
    of_base = spread_of([base])
    pooled = _with_prior(of_base, ours)
    variance = pooled.squares / pooled.freedom / seeds  # of the proposal's mean
    variance += of_base.squares / of_base.freedom / len(base)
    return Comparison(
        difference=difference,
        standard_error=math.sqrt(variance),
        freedom=pooled.freedom,
        level=level_of(look),
    )


def _with_prior(of_base: Spread, ours: Spread) -> Spread:
    return ours + Spread(PRIOR_RATIO**2 * of_base.squares, of_base.freedom)


def smallest_gain(
    base: Sequence[float], seeds: int, *, earlier: Spread, look: int, more: int = 0
) -> float:
    """The gain that a proposal with this number of ``seeds`` would show with a power of 80 %.

    Args:
        earlier: the spread within earlier proposals, which later ones are assumed to have too
        look: the number of proposals tested, including this one
        more: the number of further proposals tested before it
    """
    known = _with_prior(spread_of([base]), earlier)
    # This proposal and those before it are assumed to have the variance known so far.
    freedom = (more + 1) * (seeds - 1)
    expected = earlier + Spread(known.squares / known.freedom * freedom, freedom)
    return _comparison(base, 0.0, seeds, expected, look + more).smallest_gain


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

    Only "worse" may come before all seeds are finished or lost, so that an early end cannot make
    "better" more likely.

    Args:
        base: the base's scores, finite, of at least two seeds
        ours: the scores of the proposal's finished seeds
        planned: the number of seeds that the proposal gets
        lost: the number of seeds that failed for another reason than divergence
        has_diverged: whether a seed diverged, or has a perplexity that is not finite
        earlier: the spread within earlier proposals
        look: the number of proposals tested, including this one
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
