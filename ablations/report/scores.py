"""A row's score, and how it differs from the base."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass

from ablations.report.statistics import Estimate, required_seeds
from experiments.records.result import Measure

WITHIN_NOISE = "within noise"
EQUAL = "equal"


@dataclass(frozen=True, kw_only=True, slots=True)
class Score:
    """A row's score by one measure, ours and the paper's, and its difference from the base's.

    ``by_seed`` are the values that ``ours`` is the mean of. ``is_equal`` says that the base has the
    same score by construction, without noise: the ``difference`` is then exactly 0.
    """

    measure: Measure
    ours: Estimate | None
    by_seed: Mapping[int, float]
    paper: float | None
    difference: Estimate | None
    paper_difference: float | None
    is_equal: bool

    @property
    def required_seeds(self) -> int | None:
        """How many seeds would show the difference; None if it is not known, or too many."""
        return self.difference and required_seeds(self.difference)

    @property
    def is_judged(self) -> bool:
        """Whether there are enough seeds to say if it differs from the base."""
        return self.verdict not in ("", EQUAL)

    @property
    def verdict(self) -> str:
        """Better, worse, within noise, or equal by construction; empty if unknown."""
        if self.is_equal:
            return EQUAL
        if self.difference is None or self.difference.within_noise is None:
            return ""
        if self.difference.within_noise:
            return WITHIN_NOISE
        return "better" if is_better(self.measure, self.difference.mean) else "worse"

    @property
    def agreement(self) -> str:
        """How the sign of the difference compares with the paper's; empty if unknown."""
        ours, paper = self.difference, self.paper_difference
        if ours is None or paper is None or math.isnan(ours.mean):
            return ""
        if ours.within_noise or not ours.mean:
            return WITHIN_NOISE
        if not paper:
            return "none in paper"
        same = ours.mean * paper > 0
        if ours.interval is None:
            return "same sign" if same else "other sign"
        return "agrees" if same else "contradicts"


def is_better(measure: Measure, difference: float) -> bool:
    """Whether a row with this difference from the base is better than the base."""
    return (difference < 0) == (measure.direction == "minimize")
