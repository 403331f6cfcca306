"""Estimates, pooled spreads, tests and correlations, against tables, by hand and simulated."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterator
from pathlib import Path
from random import Random

import pytest

from ablations.report.statistics import (
    Estimate,
    correlation_interval,
    dunnett,
    estimate,
    one_of_each,
    paired_difference,
    pool,
    rank_correlation,
    required_seeds,
    share_interval,
    t_quantile,
)
from experiments.records.result import MEASURES
from tests.ablations.report.calibration import CHECKS, Finding


def test_intervals_by_hand_end_where_the_score_does() -> None:
    bleu, perplexity = MEASURES["bleu"].scale, MEASURES["perplexity"].scale
    half = 4.302653 * math.sqrt(7 / 3)  # squares 4 + 1 + 9 over 2; t(0.975) of 2 degrees of freedom
    for found, interval in (
        (estimate([80.0, 81.0, 85.0]), (82 - half, 82 + half)),
        (estimate([96.0, 98.0], bleu), (97 - 12.706205, 100)),
        (estimate([1.0, 3.0], bleu), (0, 2 + 12.706205)),
        (estimate([1.5, 2.5], perplexity), (1, 2 + 6.353102)),
        (paired_difference({1: 99.0, 2: 80.0}, {1: 2.0, 2: 3.0}, bleu), (87 - 127.06205, 100)),
        (
            paired_difference({1: 2.0, 2: 9.0}, {1: 2.0, 2: 3.0}, perplexity),
            (3 - 38.118615, 3 + 38.118615),
        ),
    ):
        assert found is not None and found.interval == pytest.approx(interval, abs=1e-4)


def test_pairing_removes_the_effect_of_the_seed() -> None:
    """A seed moves both rows by 10, and the second is 1 better with each."""
    base = {1: 10.0, 2: 20.0, 3: 30.0, 5: 99.0}
    ours = {1: 11.1, 2: 20.9, 3: 31.0, 7: -99.0}
    found = paired_difference(ours, base)
    assert found is not None and found.interval is not None
    assert (found.count, found.mean, found.within_noise) == (3, pytest.approx(1.0), False)
    assert found.deviation == pytest.approx(0.1)
    own = estimate([11.1, 20.9, 31.0])
    assert own is not None and own.interval is not None
    assert own.interval[0] < 20 < own.interval[1]
    assert paired_difference({1: 1.0}, {2: 1.0}) is None


def test_one_seed_and_runs_that_diverged_have_no_spread() -> None:
    diverged = paired_difference({1: math.inf, 2: 3.0}, {1: 3.0, 2: math.inf})
    for found, mean in ((estimate([3.0]), 3.0), (diverged, math.nan)):
        assert found is not None and found.mean == pytest.approx(mean, nan_ok=True)
        assert found.interval is None and found.within_noise is None
    assert estimate([]) is None
    for rows in ({"a": {1: 1.0}, "b": {1: 2.0}}, {"a": {1: 1.0}, "b": {2: 2.0, 3: 4.0}}, {}):
        assert pool(rows) is None


@pytest.mark.parametrize(
    ("count", "total"), [(0, 20), (20, 20), (1, 1), (1, 2), (7, 23), (19, 20), (2, 3)]
)
def test_at_the_ends_of_the_interval_of_a_share_as_extreme_a_count_has_a_chance_of_2_5_percent(
    count: int, total: int
) -> None:
    """Clopper and Pearson's definition; where no count is more extreme, the end is 0 or 1."""

    def chance(share: float, counts: range) -> float:
        return sum(math.comb(total, x) * share**x * (1 - share) ** (total - x) for x in counts)

    low, high = share_interval(count, total)
    assert chance(low, range(count, total + 1)) == pytest.approx(0.025) if count else low == 0
    assert chance(high, range(count + 1)) == pytest.approx(0.025) if count < total else high == 1


@pytest.mark.parametrize(
    ("probability", "freedom", "quantile"),
    # By scipy.special.stdtrit; the first are in every table.
    [
        (0.975, 1, 12.706204736), (0.975, 2, 4.302652730), (0.975, 9, 2.262157163),
        (0.8, 1, 1.376381920), (0.8, 38, 0.851182757), (0.975, 1000, 1.962339081),
    ],
)  # fmt: skip
def test_quantiles_of_students_t(probability: float, freedom: int, quantile: float) -> None:
    assert t_quantile(probability, freedom) == pytest.approx(quantile, rel=1e-8)


@pytest.mark.parametrize(
    ("effect", "seeds"),
    # The least n whose exact power, by scipy.special.nctdtr, is 0.8; the first five as in tables.
    [(0.3, 90), (0.5, 34), (0.8, 15), (1.0, 10), (1.5, 6), (2.0, 5), (0.2, None), (0.0, None)],
)
def test_required_seeds_are_those_of_power_tables(effect: float, seeds: int | None) -> None:
    assert required_seeds(Estimate(effect, 1.0, 3)) == seeds
    assert required_seeds(Estimate(-7 * effect, 7.0, 5)) == seeds
    assert required_seeds(Estimate(effect, 0.0, 2)) == (2 if effect else None)
    # Two rows alone have no more in the pool than their own pairs.
    assert required_seeds(Estimate(effect, 1.0, 3, pooled_freedom=2)) == seeds


@pytest.mark.parametrize(
    ("ours", "paper", "expected"),
    [
        # ranks 1 2 3 4 against 1 3 2 4: 1 - 6 * 2 / (4 * 15)
        ([1, 2, 3, 4], [10, 30, 20, 40], 0.8),
        ([1, 2, 3], [3, 2, 1], -1.0),
        # with ties, ranks 1.5 1.5 3 4 against 1 2 3.5 3.5: 4 / sqrt(4.5 * 4.5)
        ([1, 1, 2, 3], [5, 6, 7, 7], 4 / 4.5),
        ([1, 2], [1, 2], None),
        ([1, 2, 3], [5, 5, 5], None),
    ],
)
def test_spearmans_correlation_by_hand(
    ours: list[float], paper: list[float], expected: float | None
) -> None:
    found = rank_correlation(ours, paper)
    assert found == (None if expected is None else pytest.approx(expected))


def test_intervals_of_rank_correlations_and_of_a_pooled_difference_by_hand() -> None:
    # atanh(0.8) = 1.098612, sqrt((1 + 0.32) / 17) = 0.278652, times 1.959964
    ends = (math.tanh(1.098612 - 0.546148), math.tanh(1.098612 + 0.546148))
    assert correlation_interval(0.8, 20) == pytest.approx(ends, abs=1e-5)
    assert correlation_interval(0.5, 3) is None
    # A perfect order begins where that of 0.8 does, which has two of four rows swapped.
    low = math.tanh(1.098612 - 1.959964 * math.sqrt(1.32))
    for paper, interval in (((2, 3, 5, 7), (low, 1)), ((7, 5, 3, 2), (-1, -low))):
        found = rank_correlation([1, 2, 3, 4], paper)
        assert found is not None
        assert correlation_interval(found, 4) == pytest.approx(interval, abs=1e-5)
    # The interval of that order itself ends before 1.
    high = math.tanh(1.098612 + 1.959964 * math.sqrt(1.32))
    assert correlation_interval(0.8, 4) == pytest.approx((low, high), abs=1e-5)
    # t(0.975) of 38 degrees of freedom is 2.0244
    pooled = Estimate(1.0, 0.5, 1, pooled_freedom=38)
    assert pooled.interval == pytest.approx((1 - 1.0122, 1 + 1.0122), abs=1e-4)


def test_the_pool_of_two_rows_is_their_paired_spread() -> None:
    ours, base = {1: 5.0, 2: 7.0, 3: 12.0}, {1: 1.0, 2: 2.0, 3: 4.0}
    found, paired = pool({"ours": ours, "base": base}), paired_difference(ours, base)
    assert found is not None and paired is not None and paired.interval is not None
    assert found.freedom == 2 and found.p_equal == pytest.approx(1.0)
    assert found.apply(paired).interval == pytest.approx(paired.interval)


def test_unbalanced_rows_by_hand() -> None:
    """Without the seeds' effect, 10 and 20, only the third row has a residual."""
    rows = {
        "a": {1: 10.0, 2: 20.0},
        "b": {1: 11.0, 2: 21.0},
        "c": {1: 12.0, 2: 25.0},
        "one seed": {2: 99.0},
        "diverged": {1: math.inf, 2: 1.0},
        "none": {},
    }
    found = pool(rows)
    assert found is not None
    # The differences between seeds are 10, 10, 13: squares 1, 1, 4, of which each row has half.
    assert found.freedom == 2
    assert found.deviation == pytest.approx(math.sqrt((1 + 1 + 4) / 2 / 2))


def test_rows_of_one_training_count_once_in_the_pool() -> None:
    random = Random(1)
    trainings = {f"{training}-{row}": training for training in "abcdef" for row in range(4)}
    noise = {x: [random.gauss(0, 1) for _ in range(3)] for x in "abcdef"}
    rows = {
        name: {seed: 10 * seed + x + random.gauss(0, 0.1) for seed, x in enumerate(noise[training])}
        for name, training in trainings.items()
    }
    every, once = pool(rows), pool(one_of_each(rows, trainings))
    assert every is not None and once is not None
    assert (every.freedom, once.freedom) == (46, 10)
    firsts = {name: values for name, values in rows.items() if name.endswith("-0")}
    assert once == pool(firsts)
    # A table of decoding alone has no spread between trainings.
    (one,) = one_of_each(rows, dict.fromkeys(rows, "a"))
    inside = pool({name: rows[name] for name in rows if trainings[name] == "a"})
    assert one == "a-0" and inside is not None and inside.deviation < 0.2 * once.deviation
    del rows["a-0"][2]
    assert list(one_of_each(rows, trainings)) == ["a-1", *list(firsts)[1:]]


def test_unequal_spreads_are_not_pooled() -> None:
    random = Random(1)
    rows = {
        str(row): {seed: 10 * seed + row + random.gauss(0, 1) for seed in (1, 2, 3)}
        for row in range(6)
    }
    alike = pool(rows)
    assert alike is not None and alike.is_usable and 0.5 < alike.deviation < 1.5
    rows["0"][2] += 30
    mixed = pool(rows)
    assert mixed is not None and not mixed.is_usable


@pytest.mark.parametrize(
    ("seeds", "freedom", "critical"),
    [
        # scipy.stats.multivariate_t with correlations of a half.
        ([{1, 2, 3}] * 3, 10, 2.759),
        ([{1, 2, 3}] * 5, 20, 2.735),
        ([{1, 2, 3}] * 19, 38, 3.047),
        # Rows that share no run of the base, by Šidák: the normal quantile of (1 + 0.95^(1/5)) / 2.
        ([{1}, {2}, {3}, {4}, {5}], 1_000, 2.569),
    ],
)
def test_dunnetts_critical_values(seeds: list[set[int]], freedom: int, critical: float) -> None:
    assert dunnett(tuple(map(frozenset, seeds)), freedom) == pytest.approx(critical, abs=0.02)


def test_the_p_value_of_three_rows_and_two_seeds_in_closed_form() -> None:
    """Seeds move the rows by 1, 2 and 4, so residuals are as -4, -1 and 5.

    Three that sum to 0 are a point on a circle, whose angle to the nearest of six axes is uniform
    up to 30 degrees; the largest square is at most 2/3 of all, times the squared cosine.
    """
    found = pool({"a": {1: 5.0, 2: 6.0}, "b": {1: 4.0, 2: 6.0}, "c": {1: 7.0, 2: 11.0}})
    assert found is not None and found.is_usable and found.freedom == 2
    angle = math.acos(math.sqrt(25 / 42 * 3 / 2))
    assert found.p_equal == pytest.approx(angle / math.radians(30), abs=0.02)


def test_seeds_that_agree_to_the_last_digit_do_not_make_variances_unequal() -> None:
    found = pool({"a": {1: 0.1, 2: 0.1}, "b": {1: 0.3, 2: 0.3}, "c": {1: 80.7, 2: 80.7}})
    assert found is not None and (found.p_equal, found.deviation) == (1.0, 0.0)


@pytest.mark.long
@pytest.mark.timeout(1_200)  # one takes some minutes on two cores
@pytest.mark.parametrize("check", CHECKS, ids=lambda check: check.__name__)
def test_each_percentage_is_as_promised_and_as_the_docs_say(
    check: Callable[[], Iterator[Finding]],
) -> None:
    page = Path(__file__).parents[3] / "docs" / "results" / "calibration.md"
    lines = page.read_text(encoding="utf-8").splitlines()
    for finding in check():
        assert all(finding.least <= x <= finding.most for x in finding.shares), finding.line
        (said,) = (line for line in lines if line.startswith(finding.head))
        # Other versions of the libraries may round another way.
        figures = [
            [float(x) for x in re.findall(r"[0-9.]+", line.removeprefix(finding.head))]
            for line in (said, finding.line)
        ]
        assert figures[0] == pytest.approx(figures[1], abs=0.5)
