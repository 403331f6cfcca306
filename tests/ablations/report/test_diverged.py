"""Runs that diverged: what a result says of them, and a report."""

from __future__ import annotations

import math
from dataclasses import replace
from pathlib import Path

import pytest

from ablations.report.figures import table_figures
from ablations.report.seeds import shares_of_diverged
from ablations.report.statistics import paired_difference
from ablations.tables.table import Cell
from experiments.records.result import Result, load_result, save_result
from tests.ablations.report.samples import Runs, fill
from tests.ablations.samples import result

PLATEAU = {"unigram_perplexity": 200.0}


def made(perplexity: float, unigram: float | None, at: int | None = None) -> Result:
    steps = at or 1_500
    changes = {"unigram_perplexity": unigram, "diverged_at": at, "steps": steps}
    return replace(result(Cell("base", 1), perplexity), **changes)


@pytest.mark.parametrize(
    ("perplexity", "unigram", "diverged"),
    [
        (3.0, 200.0, False),
        (100.0, 200.0, False),
        (100.1, 200.0, True),
        (100.1, None, False),  # older results do not know
        (math.inf, None, True),
        (math.nan, 200.0, True),
    ],
)
def test_above_half_of_the_unigrams_perplexity_a_run_has_diverged(
    perplexity: float, unigram: float | None, diverged: bool
) -> None:
    assert made(perplexity, unigram).has_diverged == diverged


def test_a_result_that_diverged_has_no_finite_perplexity_and_says_at_which_step(
    tmp_path: Path,
) -> None:
    ours = made(math.inf, 200.0, at=7)
    save_result(tmp_path, ours)
    assert load_result(tmp_path) == ours
    with pytest.raises(ValueError, match="diverged, but its perplexity is 3"):
        made(3.0, 200.0, at=7)
    with pytest.raises(ValueError, match="diverged at step 7 of 8"):
        replace(ours, steps=8)


def plateau(runs: Runs, *cells: tuple[str, int]) -> Runs:
    return {
        row: {seed: 150.0 if (row, seed) in cells else value for seed, value in values.items()}
        for row, values in runs.items()
    }


RUNS: Runs = {
    "base": {1: 8.05, 2: 8.1, 3: 8.0},
    "noise": {1: 8.2, 2: 8.05, 3: 8.0},
    "against": {1: 9.0, 2: 9.1, 3: 8.9},
    "agrees": {1: 10.1, 2: 10.0},
}
UNIGRAMS = {(row, seed): PLATEAU for row, values in RUNS.items() for seed in values}


def test_no_report_mentions_divergence_where_no_run_did(tmp_path: Path) -> None:
    assert list(shares_of_diverged(fill(tmp_path, RUNS, changes=UNIGRAMS))) == []


def test_rows_that_diverged_have_their_share_and_the_steps(tmp_path: Path) -> None:
    runs = plateau(RUNS, ("noise", 2), ("against", 1))
    at_step = {
        ("against", seed): PLATEAU | {"steps": at, "diverged_at": at}
        for seed, at in ((2, 7), (3, 5))
    }
    runs = {**runs, "against": {1: 150.0, 2: math.inf, 3: math.inf}}
    table = fill(tmp_path, runs, changes=UNIGRAMS | at_step)
    assert list(shares_of_diverged(table)) == [
        "noise: diverged: 1 of 3 (95 % CI 1 % to 91 %)",
        "against: diverged: 3 of 3 (95 % CI 29 % to 100 %), at step 5, 7",
        "base: diverged: 0 of 3 (95 % CI 0 % to 71 %)",
        "agrees: diverged: 0 of 2 (95 % CI 0 % to 84 %)",
    ]


def test_a_row_with_a_plateau_is_left_out_of_the_pooled_spread(tmp_path: Path) -> None:
    without = {row: values for row, values in RUNS.items() if row != "noise"}
    runs = plateau(RUNS, ("noise", 2))
    alone = fill(tmp_path / "alone", without, changes=UNIGRAMS).pools["perplexity"]
    table = fill(tmp_path / "all", runs, changes=UNIGRAMS)
    assert table.pools["perplexity"] == alone
    scores = {row.name: row.scores["perplexity"] for row in table.rows}
    own = paired_difference(runs["noise"], runs["base"], (1.0, math.inf))
    assert scores["noise"].difference == own and own is not None and own.pooled_freedom is None
    against = scores["against"].difference
    assert against is not None and against.pooled_freedom == alone.freedom


def test_if_the_base_has_a_plateau_no_difference_is_pooled(tmp_path: Path) -> None:
    table = fill(tmp_path, plateau(RUNS, ("base", 2)), changes=UNIGRAMS)
    for row in table.rows[1:]:
        difference = row.scores["perplexity"].difference
        assert difference is not None and difference.pooled_freedom is None


def test_plots_leave_out_rows_that_diverged_and_say_so(tmp_path: Path) -> None:
    table = fill(tmp_path, plateau(RUNS, ("noise", 2)), changes=UNIGRAMS)
    figures = {figure.name: figure for figure in table_figures(table)}
    for name in ("differences-perplexity", "perplexity-parameters"):
        shown = {row["row"] for row in figures[name].spec["data"]["values"]}
        assert shown - {"base"} == {"against", "agrees"}, name
    assert figures["differences-perplexity"].caption.endswith("are left out: noise.")
