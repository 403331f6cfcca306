"""The numbers of a report."""

from __future__ import annotations

from pathlib import Path

import pytest

from ablations import formats
from ablations.plan import claim_plan
from ablations.reporting.summary import summarise
from ablations.statistics.correlation import ranks, spearman
from ablations.table import Cell
from tests.ablations.samples import finish, small_plan


def test_tied_ranks_are_averaged() -> None:
    assert ranks([3.0, 1.0, 3.0, 7.0]) == [2.5, 1.0, 2.5, 4.0]


def test_spearman_by_hand() -> None:
    # ranks 1 2 3 4 against 1 3 2 4: 1 - 6 * 2 / (4 * 15)
    assert spearman([1, 2, 3, 4], [10, 30, 20, 40]) == pytest.approx(0.8)
    assert spearman([1, 2, 3], [3, 2, 1]) == pytest.approx(-1.0)
    # with ties, ranks 1.5 1.5 3 4 against 1 2 3.5 3.5: 4 / sqrt(4.5 * 4.5)
    assert spearman([1, 1, 2, 3], [5, 6, 7, 7]) == pytest.approx(4 / 4.5)


def test_spearman_is_undefined_for_too_little() -> None:
    assert spearman([1, 2], [1, 2]) is None
    assert spearman([1, 2, 3], [5, 5, 5]) is None


def test_means_spreads_and_the_pooled_spread(tmp_path: Path) -> None:
    claim_plan(tmp_path, small_plan(seeds=[1, 2, 3]))
    for seed, bleu in ((1, 80.0), (2, 81.0), (3, 82.0)):
        finish(tmp_path, Cell("base", seed), bleu=bleu)
    finish(tmp_path, Cell("narrow", 1), bleu=70.0)
    finish(tmp_path, Cell("narrow", 3), bleu=72.0)
    summary = summarise(tmp_path)
    base, narrow = summary.rows
    assert base.bleu is not None and narrow.bleu is not None
    assert (base.bleu.mean, base.bleu.deviation, base.bleu.count) == (81.0, 1.0, 3)
    assert narrow.bleu.deviation == pytest.approx(2**0.5)
    # sums of squares 2 and 2 over 2 + 1 degrees of freedom
    assert summary.pooled_deviation("bleu") == pytest.approx((4 / 3) ** 0.5)
    assert [u.cell for u in narrow.unfinished] == [Cell("narrow", 2)]
    assert summary.base is base


def test_one_seed_has_no_spread(tmp_path: Path) -> None:
    claim_plan(tmp_path, small_plan())
    finish(tmp_path, Cell("base", 1))
    summary = summarise(tmp_path)
    assert summary.rows[0].bleu is not None and summary.rows[0].bleu.deviation is None
    assert summary.pooled_deviation("bleu") is None


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (formats.duration(59.4), "59 s"),
        (formats.duration(59.6), "1 min 00 s"),
        (formats.duration(3_600), "1 h 00 min"),
        (formats.duration(None), "\u2013"),
        (formats.number(1234.5, 2), "1.23e+03"),
        (formats.number(float("inf"), 2), "∞"),
        (formats.number(float("nan"), 2), "not a number"),
        (formats.difference(0.04, 1), "0.0"),
        (formats.difference(-0.04, 1), "0.0"),
        (formats.difference(-0.06, 1), "\u22120.1"),
        (formats.difference(0.06, 1), "+0.1"),
        (formats.millions(562_432), "0.562"),
        (formats.millions(2_927_872), "2.93"),
        (formats.millions(168_000_000), "168.0"),
        (formats.steps(300_000), "300K"),
        (formats.steps(4_500), "4,500"),
    ],
)
def test_formats(text: str, expected: str) -> None:
    assert text == expected
