"""The numbers of a table, its sentences, runs that are left out, and rows compared."""

from __future__ import annotations

import dataclasses
import math
import shutil
from pathlib import Path

import pytest

from ablations.folder import TableFolder
from ablations.report.compare import compare_rows
from ablations.report.facts import facts, facts_of_results
from ablations.report.figures import table_figures
from ablations.report.numbers import compute_numbers
from ablations.report.paper import (
    is_clear_in_paper,
    order_of_rows,
    regime,
    regime_grid,
    regime_warning,
)
from ablations.report.report import write_report
from ablations.report.seeds import seeds_grid, verdicts
from ablations.report.statistics import (
    dunnett,
    paired_difference,
    pool,
)
from ablations.tables.plan_file import claim_plan
from ablations.tables.table import Cell, Table, row
from ablations.tables.table3 import BASE
from experiments.evaluate.translator import Text
from experiments.records.outputs import hypotheses_path
from experiments.records.ownership import claim
from tests.ablations.report.samples import SHARED, Runs, fill, fill_shared, tables
from tests.ablations.samples import finish, result, small_plan
from tests.samples import number_pairs
from transformer.errors import InputError

OF_BASE = {1: 8.0, 2: 8.1}
RESULTS = Path(__file__).parents[3] / "experiments" / "results"


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
        ("agrees", {1: 8.0}, "", "within noise"),
        ("agrees", {3: 9.0}, "", ""),
    ],
)
def test_a_difference_is_judged(
    tmp_path: Path, row: str, runs: dict[int, float], verdict: str, agreement: str
) -> None:
    table = fill(tmp_path, {"base": OF_BASE, row: runs})
    found = next(x for x in table.rows if x.name == row).scores["perplexity"]
    assert (found.verdict, found.agreement) == (verdict, agreement)


@pytest.mark.parametrize(
    ("runs", "said"),
    [
        ({"agrees": {1: 10.0}}, "so there are no differences (Δ) to show."),
        ({"base": OF_BASE}, ""),
        (
            {"base": OF_BASE, "agrees": {1: math.inf, 2: math.inf}},
            "Perplexity: noise cannot be judged.",
        ),
        (
            {"base": OF_BASE, "agrees": {1: 10.0, 2: 10.1}},
            "Perplexity: 0 of 1 row is within noise of the base.\nBLEU: ",
        ),
    ],
)
def test_a_table_that_lacks_something_says_so(tmp_path: Path, runs: Runs, said: str) -> None:
    found = "\n".join(verdicts(fill(tmp_path, runs)))
    assert said in found and bool(found) == bool(said)


@pytest.mark.slow
def test_agreement_is_counted_over_what_the_paper_could_tell_by_one_seed_too() -> None:
    """Of Table 3, 15 rows in perplexity and 8 in BLEU."""
    made = compute_numbers(TableFolder(RESULTS / "table3-small"))
    assert made.base is not None
    clear = {
        measure: [row.name for row in made.rows if is_clear_in_paper(row, made.base, measure)]
        for measure in ("perplexity", "bleu", "test_bleu")
    }
    unclear = {"base", "A-h16", "C-N8", "D-p0.2", "E"}
    assert clear["perplexity"] == [row.name for row in made.rows if row.name not in unclear]
    assert clear["bleu"] == [
        *("A-h1", "B-dk16", "C-N2", "C-N4", "C-d256", "D-p0.0", "D-ls0.0", "big")
    ]
    assert clear["test_bleu"] == []
    said = "\n".join(verdicts(made))
    assert (
        "15 rows whose difference in the paper exceeds one seed's noise: 13 agreeing beyond noise"
        in said
    )
    assert (
        "8 rows whose difference in the paper exceeds one seed's noise: 5 agreeing beyond noise"
        in said
    )


def test_the_seeds_that_a_small_difference_in_bleu_needs_are_said(tmp_path: Path) -> None:
    """A spread of 0.108 between seeds, with two degrees of freedom."""
    runs = {"base": {1: 8.0, 2: 8.0, 3: 8.2}, "agrees": {1: 9.0, 2: 9.1, 3: 9.0}}
    table = fill(tmp_path, runs)
    said = "BLEU: about 4 seeds of each row would show a difference of 0.4"
    assert any(line.startswith(said) for line in verdicts(table))


def test_a_row_of_the_bases_training_has_the_spread_of_its_own_differences(
    tmp_path: Path,
) -> None:
    fill_shared(tmp_path)
    table = compute_numbers(TableFolder(tmp_path))
    rows = {row.name: row.scores["perplexity"] for row in table.rows}
    mean, wide = rows["mean"].difference, rows["wide"].difference
    assert mean == paired_difference(rows["mean"].by_seed, rows["base"].by_seed, (1, math.inf))
    assert wide is not None and wide.pooled_freedom == 4 == table.pools["perplexity"].freedom
    alone = pool({name: rows[name].by_seed for name in ("base", "wide", "deep")})
    assert table.pools["perplexity"] == alone
    # Of three rows with a pooled difference, two are of one training.
    (said,) = (x for x in verdicts(table) if x.startswith("Perplexity, all rows together"))
    # Six rows of three trainings, each of 61.5 s a seed.
    assert dict(facts(table))["total training time"] == "9 min 14 s"
    curves = next(x for x in table_figures(table) if x.name == "curves")
    assert "deep" in str(curves.spec) and "beam-1" not in str(curves.spec)
    assert f"count once, 5 %: {dunnett((frozenset({1, 2, 3}),) * 2, 4):.2f} standard" in said


def test_a_score_that_is_equal_by_construction_has_no_noise(tmp_path: Path) -> None:
    base = {1: 8.0, 2: 8.1}
    runs = {"base": base, "beam-1": base, "mean": {1: 7.9, 2: 8.1}}
    table = fill(tmp_path / "equal", runs, SHARED)
    beam = next(record for record in table.records() if record["row"] == "beam-1")
    assert (beam["verdict"], beam["difference"], beam["difference_low"]) == ("equal", 0.0, None)
    drawn = next(x for x in table_figures(table) if x.name == "differences-perplexity")
    assert "beam-1" not in str(drawn.spec) and "mean" in str(drawn.spec)
    # BLEU does depend on the beam, so that it is equal by chance.
    assert table.rows[1].scores["bleu"].verdict == "within noise"
    # One seed says as much.
    table = fill(tmp_path / "one", {"base": {1: 8.0}, "beam-1": {1: 8.0}}, SHARED)
    assert table.rows[1].scores["perplexity"].is_equal
    assert "No row has two seeds in common with the base" in "".join(verdicts(table))
    # Rows that were trained one by one may differ in the last digits.
    table = fill(tmp_path / "apart", {**runs, "beam-1": {1: 8.0, 2: 8.1001}}, SHARED)
    assert table.rows[1].scores["perplexity"].verdict == "within noise"
    assert not fill(tmp_path / "none", {"beam-1": base}, SHARED).has_equal_scores


def test_a_row_without_a_difference_has_the_seeds_of_its_own_mean(tmp_path: Path) -> None:
    table = fill(tmp_path, {"agrees": {1: 10.0, 2: 10.1}, "noise": {1: 8.0, 2: 8.2, 3: 8.1}})
    assert list(seeds_grid(table).columns[1].cells) == ["2", "3"]


def test_seeds_are_those_of_the_measure_that_has_most(tmp_path: Path) -> None:
    without = {("noise", seed): {"bleu": None} for seed in (1, 2)}
    table = fill(tmp_path, {"noise": {1: 8.0, 2: 8.2, 3: 8.1}}, changes=without)
    assert list(seeds_grid(table).columns[1].cells) == ["3"]


def test_a_learning_rate_that_ends_at_0_is_far_from_the_papers() -> None:
    ratios = regime(BASE, result(Cell("base", 1)), {50: 1e-4, 25_000: 2e-3, 100_000: 0.0})
    assert "last learning rate over its peak 0 (paper 0.2)" in regime_warning(ratios)
    assert list(regime_grid(ratios).columns[1].cells)[-2] == "0"


def test_rows_may_have_text_of_their_own(tmp_path: Path) -> None:
    """Another vocabulary or limit of length makes other prepared data."""
    rows = (row("base"), row("words", vocab_size=900), row("batch", tokens_per_batch=700))
    own = Table(name="pair", title="", base=BASE, rows=rows)
    runs = {each.name: {1: 8.0, 2: 9.0} for each in rows}
    digests = {(x, y): "of 900" if x == "words" else "most" for x in runs for y in (1, 2)}
    digests["batch", 2] = "other"
    changes = {cell: {"data_digest": digest} for cell, digest in digests.items()}
    table = fill(tmp_path, runs, own, changes)
    assert [len(found.results) for found in table.rows] == [2, 2, 1]
    # Perplexity with other word-pieces has another scale, and so another spread.
    assert table.pools["bleu"].freedom == 1 and "perplexity" not in table.pools
    paper = (row("base", 5.0), row("a", 6.0), row("b", 7.0), row("words", 4.0, vocab_size=900))
    own = dataclasses.replace(own, rows=paper, measures=("perplexity",))
    table = fill(tmp_path / "paper", {x.name: {1: 2.0 + n} for n, x in enumerate(paper)}, own)
    assert "perplexity +1.00 (3 rows)" in order_of_rows(table)


def test_invalid_results_are_left_out_with_the_reason(tmp_path: Path) -> None:
    seeds = (1, 2, 3, 5, 7, 11, 13)
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
    path = folder / "seed-13" / "result.json"
    path.write_text(path.read_text().replace('"steps": 1500', '"steps": 0'))
    table = compute_numbers(TableFolder(tmp_path))
    assert [result.seed for result in table.results] == [1]
    reasons = {each.seed: each.problem for each in table.rows[0].unfinished}
    for seed, reason in (
        (2, "seed-2/result.json cannot be read as JSON"),
        (3, "seed-3/config.json cannot be read as JSON"),
        (5, "seed-5/result.json is of pair-tiny/base, seed 1"),
        (7, "model.vocab_size: 8000 -> 4000"),
        (11, "is of pair-small/base, seed 11"),
        (13, "0 steps"),
    ):
        assert reason in reasons[seed]
    assert "  base, seed 7: stale (" in write_report(TableFolder(tmp_path))
    assert tables(tmp_path)[0]["narrow"]["PPL"] == "missing"


def test_results_without_versions_say_so() -> None:
    old = dataclasses.replace(result(Cell("base", 1)), versions={})
    assert dict(facts_of_results([old]))["versions"] == "not recorded"


def test_the_papers_own_numbers_are_near() -> None:
    paper = dataclasses.replace(
        result(Cell("base", 1)),
        target_tokens=2_500_000_000,
        corpus_target_tokens=130_000_000,
        parameters=65_000_000,
        steps=100_000,
    )
    numbers = regime(BASE, paper, {})
    for name, ours, theirs in numbers:
        assert ours == pytest.approx(theirs, rel=0.05), name
    assert len(numbers) == 6 and not regime_warning(numbers)
    far = regime(BASE, dataclasses.replace(paper, parameters=1_000_000), {})
    assert regime_warning(far).startswith(
        "Over a factor of 3 away from the paper's: target tokens seen per parameter 2.5e+03 (paper "
        "38), distinct target tokens per parameter 130 (paper 2). Rows may differ"
    )


def test_learning_rates_of_a_methods_own_are_those_that_were_recorded() -> None:
    rates = {50: 1e-4, 25_000: 2e-3, 50_000: 1e-3, 100_000: 5e-4}
    found = {x.name: x.ours for x in regime(BASE, result(Cell("base", 1)), rates)}
    assert found["warm-up share of the steps"] == 0.25
    assert found["last learning rate over its peak"] == 0.25


REFERENCES = [target for _, target in number_pairs(31, seed=5)]


@pytest.fixture
def translated(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """``base`` has finished seeds 1, 2, 3, and ``narrow``, which lacks words, 1, 3, 5."""
    plan = claim_plan(tmp_path, small_plan(seeds=[1, 2, 3, 5]))
    for name, seeds in (("base", (1, 2, 3)), ("narrow", (1, 3, 5))):
        for seed in seeds:
            cell = Cell(name, seed)
            finish(tmp_path, cell)
            claim(cell.directory(tmp_path), plan.experiment(cell))
            lines = (x[: -seed if name == "narrow" else None] for x in REFERENCES)
            path = hypotheses_path(cell.directory(tmp_path), "valid")
            path.write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")
    monkeypatch.setattr(
        "experiments.evaluate.trained.text_of_split", lambda *_: Text(REFERENCES, REFERENCES)
    )
    monkeypatch.setattr("experiments.evaluate.significance._TRIALS", 1_000)
    monkeypatch.setattr("experiments.evaluate.significance._SAMPLES", 100)
    return tmp_path


def test_a_line_per_common_seed_and_one_over_all(translated: Path) -> None:
    first, third, over, signature = compare_rows(TableFolder(translated), "base", "narrow", None)
    for line, seed in ((first, 1), (third, 3)):
        assert line.startswith(f"seed {seed}: BLEU of base 100.00, of narrow ")
        assert line.endswith(": base is better than narrow")
    assert over.startswith("over 2 seeds: difference \u2212") and " 95 % CI \u2212" in over
    assert signature.startswith("nrefs:1|bs:100|ar:1000|")
    line, alone, _ = compare_rows(TableFolder(translated), "narrow", "base", "3")
    assert line.startswith("seed 3: BLEU of narrow ") and alone.startswith(
        "one seed: p covers only the"
    )


def test_seeds_that_one_row_was_not_to_have_are_left_out(translated: Path) -> None:
    folder = TableFolder(translated)
    base, narrow, *_ = folder.plan.rows
    narrow = dataclasses.replace(narrow, seeds=(1,))
    folder = TableFolder(translated, dataclasses.replace(folder.plan, rows=(base, narrow)))
    line, *_ = compare_rows(folder, "base", "narrow", None)
    assert line.startswith("seed 1: BLEU of base 100.00, of narrow ")


@pytest.mark.parametrize(
    ("first", "second", "seeds", "message"),
    [
        ("base", "narow", None, "unknown row 'narow': did you mean 'narrow'?"),
        ("base", "base", None, "give two rows, and seeds that both have finished"),
        ("base", "narrow", "1-3", "both have finished; those are: 1, 3$"),
        ("base", "narrow", "one", "--seeds holds 'one'"),
    ],
)
def test_what_cannot_be_compared(
    translated: Path, first: str, second: str, seeds: str | None, message: str
) -> None:
    with pytest.raises(InputError, match=message.replace("?", r"\?")):
        list(compare_rows(TableFolder(translated), first, second, seeds))
