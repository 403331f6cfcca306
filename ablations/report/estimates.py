"""What some seeds tell of all: means, differences, and how many seeds would tell more."""

from __future__ import annotations

import bisect
import functools
import math
import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

CONFIDENCE = 0.95
POWER = 0.8
# Beyond this many seeds a table is not going to be run.
MOST_SEEDS = 100


@dataclass(frozen=True, slots=True)
class Estimate:
    """A mean over ``count`` seeds; ``deviation`` is the sample standard deviation.

    It is None for one seed, or where a value is not finite.
    """

    mean: float
    deviation: float | None
    count: int

    @property
    def freedom(self) -> int:
        """Degrees of freedom of the deviation."""
        return self.count - 1

    @property
    def error(self) -> float | None:
        """The standard error of the mean; None without a deviation."""
        return None if self.deviation is None else self.deviation / math.sqrt(self.count)

    @property
    def interval(self) -> tuple[float, float] | None:
        """The 95 % interval of the mean by Student's t; None without a deviation."""
        if self.error is None:
            return None
        half = _two_sided(self.freedom) * self.error
        return self.mean - half, self.mean + half


@dataclass(frozen=True, slots=True)
class Difference(Estimate):
    """A row less the base, paired by seed: an estimate over the ``count`` seeds both have.

    ``pooled_freedom`` is of a deviation that is pooled over rows.
    """

    pooled_freedom: int | None = None

    @property
    def freedom(self) -> int:
        """Degrees of freedom of the deviation."""
        return self.pooled_freedom or self.count - 1

    @property
    def within_noise(self) -> bool | None:
        """Whether the interval holds 0; None where there is no interval."""
        if self.interval is None:
            return None
        low, high = self.interval
        return low <= 0 <= high


def estimate(values: Sequence[float]) -> Estimate | None:
    """The mean of one value per seed, None where there is no value."""
    return Estimate(*_moments(values)) if values else None


def paired_difference(ours: Mapping[int, float], base: Mapping[int, float]) -> Difference | None:
    """The mean of ``ours`` less ``base``, values by seed; None where no seed is in both.

    What a seed does to both rows alike, as the order of the batches, falls out of the difference.
    """
    pairs = [ours[seed] - base[seed] for seed in ours if seed in base]
    return mean_difference(pairs) if pairs else None


def mean_difference(pairs: Sequence[float]) -> Difference:
    """The mean of one difference per seed, of which there is at least one."""
    return Difference(*_moments(pairs))


def seeds_to_tell(difference: Difference) -> int | None:
    """About how many seeds tell the rows apart, if difference and spread are those seen.

    The least n of a paired t test at two-sided 5 % with a power of 80 %,
    √n ≥ (t(0.975) + t(0.8)) · deviation / mean with n - 1 degrees of freedom, or those of a
    pooled deviation (Zar 2010, Biostatistical Analysis, section 7.7); the exact n, by the
    noncentral t, is the same or one more. At least 2; None for more than ``MOST_SEEDS``.

    Raises:
        ValueError: if the difference has no deviation.
    """
    deviation = difference.deviation
    if deviation is None:
        raise ValueError("a difference of one pair has no spread")

    def enough(count: int) -> bool:
        freedom = difference.pooled_freedom or count - 1
        errors = _two_sided(freedom) + quantile(POWER, freedom)
        return errors * deviation <= math.sqrt(count) * abs(difference.mean)

    counts = range(2, MOST_SEEDS + 1)
    found = bisect.bisect_left(counts, True, key=enough) if difference.mean else len(counts)
    return counts[found] if found < len(counts) else None


@functools.cache
def quantile(probability: float, freedom: int) -> float:
    """The value that Student's t stays below with ``probability``."""
    # Imported here: it takes 0.65 s with numpy, and one seed needs no interval.
    from scipy.special import stdtrit

    return float(stdtrit(freedom, probability))


def _two_sided(freedom: int) -> float:
    """How many standard errors the 95 % interval of a mean reaches."""
    return quantile((1 + CONFIDENCE) / 2, freedom)


def _moments(values: Sequence[float]) -> tuple[float, float | None, int]:
    if not all(map(math.isfinite, values)):
        # A run that diverged; fmean refuses infinities of both signs.
        return sum(values) / len(values), None, len(values)
    deviation = statistics.stdev(values) if len(values) > 1 else None
    return statistics.fmean(values), deviation, len(values)
