"""Speed-ups by validation curves."""

from __future__ import annotations

import math
from collections.abc import Mapping
from pathlib import Path

import pytest

from ablations.folder import TableFolder
from ablations.folder.base import Record
from ablations.report.numbers import compute_numbers
from ablations.report.report import write_report
from ablations.report.speed_up import Curve, Speed, ends_at_last_step, speed_up
from ablations.report.statistics import Estimate
from ablations.tables.step_times import StepTimes, load_step_times
from ablations.tables.table import Cell
from tests.ablations.report.samples import SIGNS, fill
from tests.ablations.samples import leave_curve
from transformer.errors import InputError

# A base, and a row that is twice as fast: its perplexities are those of the base at twice the step.
BASE = {10: 32.0, 20: 16.0, 40: 8.0, 80: 4.0}
TWICE = {10: 16.0, 20: 8.0, 40: 4.0, 80: 2.0}


def found(base: Mapping[int, float], row: Mapping[int, float], *, ends: bool = False) -> Speed:
    difference = Estimate(row[max(row)] - base[max(base)], None, 1)
    speed = speed_up(Curve(base, ends=False), Curve(row, ends), difference)
    assert speed is not None
    return speed.mean


def test_a_row_that_is_twice_as_fast_has_two_and_the_other_way_round_a_half() -> None:
    assert found(BASE, TWICE) == Speed(2.0)
    assert found(TWICE, BASE) == Speed(0.5)
    assert found(BASE, BASE) == Speed(1.0)
    assert [str(x) for x in (Speed(2.0), Speed(1.0, ">"), Speed(0.5, "<"))] == [
        "2.00",
        "> 1",
        "< 0.5",
    ]


def test_between_validations_the_logarithm_of_perplexity_is_a_straight_line() -> None:
    row = {40: 16.0, 80: 1.0}  # 4 is half of the way, at step 60
    assert found(BASE, row).value == pytest.approx(80 / 60)
    assert found(row, BASE).value == pytest.approx(60 / 80)


def test_a_row_of_other_steps_is_compared_by_its_own() -> None:
    longer = {40: 8.0, 120: 4.0, 240: 2.0}
    assert found(BASE, longer).value == pytest.approx(80 / 120)


def test_a_rate_that_ends_at_the_last_step_leaves_a_bound_where_its_curve_is_needed() -> None:
    assert found(BASE, TWICE, ends=True) == Speed(1.0, ">")
    assert found(TWICE, BASE, ends=True) == Speed(0.5)
    assert speed_up(Curve(BASE, ends=True), Curve(TWICE, ends=False), Estimate(-2, 0.1, 3)) is None


def test_a_curve_that_is_as_low_at_its_first_validation_leaves_a_bound() -> None:
    fast = {10: 3.0, 80: 2.0}
    assert found(BASE, fast) == Speed(8.0, ">")
    assert found(fast, BASE) == Speed(1 / 8, "<")


@pytest.mark.parametrize(
    ("mean", "within"), [(-0.5, True), (-1.5, False), (0.5, True), (3.0, False)]
)
def test_the_interval_has_one_where_the_difference_is_within_noise(
    mean: float, within: bool
) -> None:
    difference = Estimate(mean, 0.7, 5)
    assert difference.within_noise is within
    row = {step: value * (4 + mean) / 4 for step, value in BASE.items()}
    speed = speed_up(Curve(BASE, ends=False), Curve(row, ends=False), difference)
    assert speed is not None and speed.interval is not None
    low, high = (end.value for end in speed.interval)
    assert low < speed.mean.value < high
    assert (low <= 1 <= high) is within


def test_rates_end_where_they_fall_below_a_tenth_of_their_peak() -> None:
    assert ends_at_last_step({1: 0.1, 50: 1.0, 100: 0.05})
    assert not ends_at_last_step({1: 0.1, 50: 1.0, 100: 0.2})
    assert not ends_at_last_step({})


def fill_curves(root: Path, *, averaged: bool = False) -> TableFolder:
    """A base, and a row that is twice as fast, with two seeds that are 1 % apart."""
    runs = {
        name: {seed: curve[80] * (1 + 0.01 * seed) for seed in (1, 2)}
        for name, curve in {"base": BASE, "agrees": TWICE}.items()
    }
    fill(root, runs)
    for name, curve in {"base": BASE, "agrees": TWICE}.items():
        for seed in (1, 2):
            scale = (1 + 0.01 * seed) * (1.05 if averaged else 1.0)
            points = {step: value * scale for step, value in curve.items()}
            leave_curve(Cell(name, seed).directory(root), points)
    return TableFolder(root)


def records(folder: TableFolder) -> list[Record]:
    """Those of the row that is twice as fast, by perplexity and by BLEU."""
    return [x for x in compute_numbers(folder).records() if x["row"] == "agrees"]


@pytest.mark.usefixtures("undrawn")
def test_a_report_has_it_next_to_the_difference_in_perplexity(tmp_path: Path) -> None:
    folder = fill_curves(tmp_path)
    write_report(folder)
    lines = (tmp_path / "report.md").read_text().splitlines()
    cells = [[cell.strip() for cell in line.split("|")] for line in lines if line.startswith("|")]
    heads, row = cells[0], next(line for line in cells if line[1] == "agrees")
    assert row[heads.index("PPL speed-up")] == "2.00"
    assert heads.index("PPL Δ") < heads.index("PPL speed-up") < heads.index("BLEU")
    assert any("PPL speed-up, 95 % CI" in line for line in lines)
    assert any(line.startswith("- Speed-up: the base's steps") for line in lines)
    of_row, of_bleu = records(folder)
    assert of_row["speed_up"] == pytest.approx(2.0, abs=1e-3)
    low, high = of_row["speed_up_low"], of_row["speed_up_high"]
    assert isinstance(low, float) and isinstance(high, float) and low < 2 < high
    assert of_bleu["speed_up"] is None


@pytest.mark.usefixtures("undrawn")
def test_speed_up_in_time_needs_measured_steps(tmp_path: Path) -> None:
    folder = fill_curves(tmp_path)
    assert compute_numbers(folder).speed_up_in_time("agrees") is None
    times = StepTimes(device="a Xeon", commit="0123abc", turns=30, ratios={"agrees": 1.6})
    times.save(tmp_path)
    of_row, _ = records(folder)
    assert of_row["speed_up_in_time"] == pytest.approx(2.0 / 1.6, abs=1e-3)
    write_report(folder)
    page = (tmp_path / "report.md").read_text()
    assert "PPL in time" in page and "a Xeon, 30 steps of each row, 0123abc" in page
    folder.collect(tmp_path / "results")
    assert load_step_times(tmp_path / "results") == times
    with pytest.raises(InputError, match=r"step time of row 'x' is 0\.0 times"):
        StepTimes(device="a Xeon", commit="0123abc", turns=30, ratios={"x": 0.0})


@pytest.mark.usefixtures("undrawn")
def test_curves_of_weights_that_were_not_scored_are_not_compared(tmp_path: Path) -> None:
    folder = fill_curves(tmp_path, averaged=True)
    assert not compute_numbers(folder).speed_ups
    write_report(folder)
    assert "peed-up" not in (tmp_path / "report.md").read_text()


@pytest.mark.parametrize("value", [0.0, -1.0, math.inf, math.nan])
def test_a_curve_that_holds_no_perplexity_is_not_compared(tmp_path: Path, value: float) -> None:
    folder = fill_curves(tmp_path)
    leave_curve(Cell("agrees", 1).directory(tmp_path), {10: value, 80: 1.01 * TWICE[80]})
    assert not compute_numbers(folder).speed_ups


def test_a_diverged_row_has_no_speed_up(tmp_path: Path) -> None:
    fill_curves(tmp_path)
    numbers = fill(tmp_path, {"base": {1: 4.04}, "agrees": {1: math.inf}}, SIGNS)
    assert not numbers.speed_ups
