"""The numbers of a table, its sentences, and runs that are left out."""

from __future__ import annotations

import dataclasses
import math
import shutil
from pathlib import Path

import pytest

from ablations.report.numbers import compute_numbers
from ablations.report.report import write_report
from ablations.report.sentences import regime, regime_warning, verdicts
from ablations.tables.plan import claim_plan
from ablations.tables.table import Cell, Table, row
from ablations.tables.table3 import BASE
from experiments.records.ownership import claim
from tests.ablations.report.samples import Runs, fill, tables
from tests.ablations.samples import finish, result, small_plan

PAIR = {"base": {1: 8.0, 2: 8.1}, "agrees": {1: 10.0, 2: 10.1}}
TWO = {1: 8.0, 2: 9.0}
THREE = {1: 8.0, 2: 9.0, 3: 10.0}


def test_means_spreads_and_differences_over_common_seeds(tmp_path: Path) -> None:
    table = fill(tmp_path, {"base": THREE, "agrees": {1: 9.0, 3: 13.0}})
    base, row = table.rows
    assert table.base is base
    ours = base.scores["bleu"].ours
    assert ours and (ours.mean, ours.deviation, ours.count) == (31.0, 1.0, 3)
    found = row.scores["perplexity"]
    assert found.ours and found.ours.deviation == pytest.approx(2 * 2**0.5)
    assert found.difference and (found.difference.mean, found.difference.count) == (2.0, 2)
    assert (found.paper, found.paper_difference) == (6.0, 1.0)
    assert [run.seed for run in row.unfinished] == [2]


@pytest.mark.parametrize(
    ("row", "runs", "verdict", "agreement"),
    [
        ("agrees", {1: 10.0, 2: 10.1}, "worse", "agrees"),
        ("agrees", {1: 6.0, 2: 6.1}, "better", "contradicts"),
        ("noise", {1: 8.0, 2: 8.2}, "within noise", "within noise"),
        ("equal", {1: 11.0, 2: 11.1}, "worse", "none in paper"),
        ("agrees", {1: 10.0}, "", "same sign"),
        ("against", {1: 9.0}, "", "other sign"),
        ("agrees", {1: math.inf, 2: 8.0}, "", "same sign"),
        ("agrees", {3: 9.0}, "", ""),
    ],
)
def test_a_difference_is_judged(
    tmp_path: Path, row: str, runs: dict[int, float], verdict: str, agreement: str
) -> None:
    table = fill(tmp_path, {"base": PAIR["base"], row: runs})
    found = next(x for x in table.rows if x.name == row).scores["perplexity"]
    assert (found.verdict, found.agreement) == (verdict, agreement)


@pytest.mark.parametrize(
    ("runs", "said"),
    [
        (
            {"base": {1: 8.0}, "agrees": {1: 10.0}},
            [
                "No row has two seeds in common with the base, so noise cannot be judged; "
                "run --seeds 1,2,3 adds seeds.",
                "Perplexity, sign of Δ compared with the paper's, 1 row(s): same sign 1.",
            ],
        ),
        ({"agrees": {1: 10.0}}, ["so there are no differences (Δ) to show."]),
        ({"base": {1: 8.0, 2: 8.1}}, []),
        (
            {"base": {1: 8.0, 2: 8.1}, "agrees": {1: math.inf, 2: math.inf}},
            [
                "Perplexity: noise cannot be judged.",
                "BLEU: 0 of 1 rows are within noise of the base.",
            ],
        ),
        (
            {name: {1: 8.0, 2: 8.2, 3: 8.1} for name in ("base", "agrees", "noise")},
            ["all rows together (Dunnett's test, 5 %: ", ": 0 of 2 differ from the base."],
        ),
    ],
)
def test_sentences(tmp_path: Path, runs: Runs, said: list[str]) -> None:
    found = "\n".join(verdicts(fill(tmp_path, runs)))
    assert all(words in found for words in said)
    assert bool(found) == bool(said)


def test_runs_on_other_data_are_named_and_not_averaged(tmp_path: Path) -> None:
    digests = {("base", 1): "other", ("base", 2): "most", ("base", 3): "most"}
    digests |= {("agrees", 1): "most", ("agrees", 2): None, ("agrees", 3): "third"}
    changes = {cell: {"data_digest": digest} for cell, digest in digests.items()}
    base, row = fill(tmp_path, {"base": THREE, "agrees": THREE}, changes=changes).rows
    assert base.means["perplexity"].mean == 9.5
    assert [result.seed for result in row.results] == [1, 2], "unknown data is accepted"
    assert str(row.unfinished[0]) == "left out (its data is third, that of most runs is most)"


def test_rows_may_have_text_of_their_own(tmp_path: Path) -> None:
    """Another vocabulary or limit of length makes other prepared data."""
    rows = (row("base"), row("words", vocab_size=900), row("batch", tokens_per_batch=700))
    own = Table(name="pair", title="", base=BASE, rows=rows)
    runs = {each.name: TWO for each in rows}
    digests = {(x, y): "of 900" if x == "words" else "most" for x in runs for y in (1, 2)}
    digests["batch", 2] = "other"
    changes = {cell: {"data_digest": digest} for cell, digest in digests.items()}
    table = fill(tmp_path, runs, own, changes)
    assert [len(found.results) for found in table.rows] == [2, 2, 1]
    # Perplexity with other word-pieces has another scale, and so another spread.
    assert table.pools["bleu"].freedom == 1 and "perplexity" not in table.pools


def test_invalid_results_are_left_out_with_the_reason(tmp_path: Path) -> None:
    seeds = (1, 2, 3, 5, 7, 11)
    plan = claim_plan(tmp_path, small_plan(seeds=seeds))
    for seed in seeds:
        cell = Cell("base", seed)
        finish(tmp_path, cell)
        if seed < 11:
            claim(cell.directory(tmp_path), plan.experiment(cell))
    folder = tmp_path / "base"
    (folder / "seed-2" / "result.json").write_text('{"experiment": "pai')
    (folder / "seed-3" / "config.json").write_text('{"name": "pai')
    shutil.copy(folder / "seed-1" / "result.json", folder / "seed-5" / "result.json")
    config = folder / "seed-7" / "config.json"
    config.write_text(config.read_text().replace('"vocab_size": 4000', '"vocab_size": 8000'))
    path = folder / "seed-11" / "result.json"
    path.write_text(path.read_text().replace("pair-tiny", "pair-small"))
    table = compute_numbers(tmp_path)
    assert [result.seed for result in table.results] == [1]
    reasons = {each.seed: each.reason for each in table.rows[0].unfinished}
    for seed, reason in (
        (2, "seed-2/result.json cannot be read as JSON"),
        (3, "seed-3/config.json cannot be read as JSON"),
        (5, "seed-5/result.json is of pair-tiny/base, seed 1"),
        (7, "model.vocab_size: 8000 -> 4000"),
        (11, "is of pair-small/base, seed 11"),
    ):
        assert reason in reasons[seed]
    assert "  base, seed 7: left out (" in write_report(tmp_path)
    assert tables(tmp_path)[0]["narrow"]["PPL"] == "missing"


def test_the_papers_own_numbers_are_near() -> None:
    paper = dataclasses.replace(
        result(Cell("base", 1)),
        target_tokens=2_500_000_000,
        corpus_target_tokens=130_000_000,
        parameters=65_000_000,
        steps=100_000,
    )
    numbers = regime(BASE, paper)
    for name, ours, theirs in numbers:
        assert ours == pytest.approx(theirs, rel=0.05), name
    assert len(numbers) == 6 and not regime_warning(numbers)
    far = regime(BASE, dataclasses.replace(paper, parameters=1_000_000))
    assert regime_warning(far).startswith(
        "More than a factor of 3 from the paper's: target tokens seen per parameter 2.5e+03 (paper "
        "38), distinct target tokens per parameter 130 (paper 2). Rows may differ"
    )
