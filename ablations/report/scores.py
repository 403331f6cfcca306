"""A row's score, and how it differs from the base."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace

from ablations.report.statistics import Estimate, required_seeds
from experiments.records.result import Measure

WITHIN_NOISE = "within noise"
EQUAL = "equal"


@dataclass(frozen=True, kw_only=True, slots=True)
class Score:
    """A row's score by one measure, ours and the paper's, and its difference from the base's.

    ``by_seed`` are the values that ``ours`` is the mean of; ``required_seeds`` is how many seeds
    would show the difference. ``verdict`` is better, worse, within noise, or equal where both have
    the same score by construction. ``agreement`` says how the sign of the difference compares with
    the paper's. Both are "" if unknown.
    """

    ours: Estimate | None
    by_seed: Mapping[int, float]
    paper: float | None
    difference: Estimate | None
    required_seeds: int | None
    paper_difference: float | None
    verdict: str
    agreement: str

    @property
    def is_equal(self) -> bool:
        """Whether it equals the base's by construction, without noise."""
        return self.verdict == EQUAL

    @property
    def is_judged(self) -> bool:
        """Whether there are enough seeds to say if it differs from the base."""
        return self.verdict not in ("", EQUAL)


def make_score(
    measure: Measure,
    *,
    ours: Estimate | None,
    by_seed: Mapping[int, float],
    paper: float | None,
    difference: Estimate | None,
    paper_difference: float | None,
    is_equal: bool,
) -> Score:
    """A score with its verdicts; if it ``is_equal`` to the base's, its difference is exactly 0."""
    seeds = None
    if is_equal and difference:
        difference = replace(difference, mean=0.0, deviation=None)
    elif difference and difference.deviation is not None:
        seeds = required_seeds(difference)
    return Score(
        ours=ours,
        by_seed=by_seed,
        paper=paper,
        difference=difference,
        required_seeds=seeds,
        paper_difference=paper_difference,
        verdict=EQUAL if is_equal else _verdict(measure, difference),
        agreement=_agreement(difference, paper_difference),
    )


def _verdict(measure: Measure, difference: Estimate | None) -> str:
    if difference is None or difference.within_noise is None:
        return ""
    if difference.within_noise:
        return WITHIN_NOISE
    return "better" if is_better(measure, difference.mean) else "worse"


def is_better(measure: Measure, difference: float) -> bool:
    """Whether a row with this difference from the base is better than the base."""
    return (difference < 0) == (measure.direction == "minimize")


def _agreement(ours: Estimate | None, paper: float | None) -> str:
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
