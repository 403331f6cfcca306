"""Train a row of a finished table again."""

from __future__ import annotations

import dataclasses
import math
from pathlib import Path

import pytest

from ablations.folder import TableFolder
from ablations.report.confirm import confirmation, describe_confirmation, smallest_shown
from ablations.report.statistics import Pool, pool_within
from ablations.tables.plan_file import load_plan
from ablations.tables.table import Cell, Table, row
from ablations.tables.table3 import BASE
from experiments.records.result import load_result, save_result
from tests.ablations.report.samples import fill
from tests.ablations.samples import Call, prepare_stand_ins, started
from tests.ablations.test_run_again import MINE, RUN, edit

CONFIRM = "confirm out --row idea --seeds 4,5 --into again --variant mine.py --log none --workers 1"


@pytest.fixture
def mine(out: Path, call: Call) -> Path:
    file = out.with_name("mine.py")
    file.write_text(MINE)
    assert call(f"{RUN} --seeds 1-3")[0] == 0
    prepare_stand_ins(out.with_name("again"), {})
    return file


@pytest.mark.slow
def test_a_row_is_trained_again_with_fresh_seeds(mine: Path, out: Path, call: Call) -> None:
    code, shown = call(CONFIRM)
    again = out.with_name("again")
    assert code == 0 and started(again) == ["idea/seed-4", "idea/seed-5"]
    assert "seeds 4, 5 trained here, seeds 1, 2, 3 in out" in shown
    assert "no difference" in shown and "this many seeds would show a difference of" in shown
    assert load_plan(again).configs == {"idea": load_plan(out).configs["idea"]}

    code, shown = call(CONFIRM.replace("4,5", "1"))  # which adds a seed to the directory
    assert code == 0 and "seed 1: every digit is the same" in shown
    assert started(again) == ["idea/seed-4", "idea/seed-5", "idea/seed-1"]
    assert call(CONFIRM.replace("idea", "base", 1))[0] == 0
    assert {row.name for row in load_plan(again).rows} == {"base", "idea"}
    assert mine.exists()


def test_a_row_of_another_source_names_the_commit_to_check_out(
    mine: Path, out: Path, call: Call
) -> None:
    edit(mine, "slope = 1", "slope = 2")
    code, shown = call(CONFIRM)
    assert code == 2 and "was trained differently (source of Idea" in shown
    commit = load_result(Cell("idea", 1).directory(out))
    assert commit is not None and f"check out commit {commit.commit} " in shown
    assert not started(out.with_name("again"))


@pytest.mark.usefixtures("mine")
def test_what_cannot_be_confirmed_is_refused(out: Path, call: Call) -> None:
    refused = (
        ("--row idea", "--row ide", "unknown row 'ide'"),
        ("--seeds 4,5", "--seeds 4-x", "--seeds holds '4-x'"),
        ("confirm out", "confirm nowhere", "nowhere does not exist: committed results are in"),
        ("--into again", "--into out", "--into is out itself"),
        ("--into again", "--into out/deeper", "--into is out/deeper inside out: give"),
    )
    for given, wrong, words in refused:
        code, shown = call(CONFIRM.replace(given, wrong))
        assert code == 2 and words in shown, wrong
    assert len(started(out)) == 6


@pytest.mark.usefixtures("mine")
def test_a_row_with_damaged_runs_is_not_trained_again(out: Path, call: Call) -> None:
    (Cell("idea", 2).directory(out) / "result.json").write_text("{")
    code, shown = call(CONFIRM)
    assert code == 2 and "idea/seed-2 of out cannot be used: " in shown
    assert not started(out.with_name("again"))


def test_runs_that_diverged_are_counted_and_the_others_compared(tmp_path: Path) -> None:
    there, here = tmp_path / "there", tmp_path / "here"
    fill(there, {"base": {1: 5.0, 2: 5.1, 3: 4.9}, "noise": {1: 6.0, 2: 6.1, 3: 5.9}})
    plateau = {("base", 5): {"unigram_perplexity": 301.0}}
    fill(here, {"base": {4: 5.2, 5: 300.0}}, changes=plateau)
    lines = list(describe_confirmation(TableFolder(there), TableFolder(here), "base"))
    assert "  diverged: 1 of 2 here, 0 of 3 there; the others are compared" in lines
    (line,) = (line for line in lines if line.startswith("Perplexity"))
    assert line.startswith("Perplexity: 5.200 here, 5.000 there, +0.200 (95 % CI")


def test_the_same_seed_is_compared_digit_by_digit(tmp_path: Path) -> None:
    there = tmp_path / "there"
    fill(there, {"base": {1: 5.0, 2: 5.1}, "noise": {1: 6.0, 2: 6.1}})
    here = tmp_path / "here"
    fill(here, {"base": {1: 5.0, 2: 5.2}})
    directory = Cell("base", 2).directory(here)
    made = load_result(directory)
    assert made is not None
    save_result(directory, dataclasses.replace(made, device="another"))
    lines = list(describe_confirmation(TableFolder(there), TableFolder(here), "base"))
    assert lines[0].endswith("no new seed is finished here")
    assert lines[1] == "  seed 1: every digit is the same"
    assert lines[2] == "  seed 2: different digits, with another device"
    assert len(lines) == 3


def test_rows_that_diverged_or_have_other_text_do_not_count_in_the_spread(tmp_path: Path) -> None:
    rows = (row("base"), row("words", vocab_size=900), row("plateau", dropout=0.0))
    table = Table(name="pair", title="", base=BASE, rows=rows)
    runs = {"base": {1: 5.0, 2: 5.1}}
    here = tmp_path / "here"
    fill(here, {"base": {3: 5.2}}, table)
    lines: list[list[str]] = []
    wild = {"words": {1: 5.0, 2: 50.0}, "plateau": {1: 5.0, 2: 9_000.0}}
    for number, others in enumerate(({}, wild)):
        there = tmp_path / str(number)
        diverged = {("plateau", 2): {"unigram_perplexity": 9_001.0}}
        fill(there, runs | others, table, diverged)
        found = describe_confirmation(TableFolder(there), TableFolder(here), "base")
        lines.append([line for line in found if "Perplexity" in line])
    assert lines[0] == lines[1] and "95 % CI" in lines[0][0]


def test_the_interval_is_of_the_spread_within_rows() -> None:
    """A seed that moves all rows is noise between runs of other seeds."""
    rows = {"a": {1: 1.0, 2: 3.0}, "b": {1: 11.0, 2: 13.0}}
    found = pool_within(rows)
    assert found is not None
    assert (found.deviation, found.freedom) == (pytest.approx(math.sqrt(2)), 2)
    spread = Pool(0.5, 20, 1.0)
    estimate = confirmation({1: 2.0, 2: 4.0, 3: 3.0}, {4: 4.0, 5: 5.0}, spread)
    error = 0.5 * math.sqrt(1 / 3 + 1 / 2)
    assert estimate.mean == pytest.approx(1.5) and estimate.interval is not None
    assert estimate.interval[0] == pytest.approx(1.5 - 2.085963 * error)
    assert smallest_shown(estimate) == pytest.approx((2.085963 + 0.859964) * error)
    unequal = confirmation({1: 2.0, 2: 4.0}, {4: 4.0, 5: 6.0}, Pool(0.1, 20, 0.01))
    assert (unequal.deviation, unequal.pooled_freedom) == (pytest.approx(math.sqrt(2)), 2)
