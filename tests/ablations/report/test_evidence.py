"""What a report says of noise."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from ablations.report.report import to_text, write_report
from ablations.tables.plan import claim_plan, make_plan
from ablations.tables.table import Cell
from tests.ablations.report.pages import parsed, rows_of
from tests.ablations.samples import SMALL_TABLE, TINY, finish, small_plan


@pytest.mark.parametrize("has_base", [True, False])
def test_a_report_without_a_base_says_why_there_are_no_differences(
    tmp_path: Path, has_base: bool
) -> None:
    own = replace(SMALL_TABLE, rows=SMALL_TABLE.rows[0 if has_base else 1 :])
    claim_plan(tmp_path, make_plan(own, TINY, own.rows[-1:], (1,)))
    finish(tmp_path, Cell("free", 1))
    remedy = "run --rows base trains it" if has_base else 'add row("base") to the table'
    told = f"No base was run, so there are no differences (Δ) to show: {remedy}."
    assert told in to_text(write_report(tmp_path), 100)


def test_noise_is_marked_and_explained(table3: Path) -> None:
    """A difference carries the mark where its own bounds hold 0, and only there."""
    text = (table3 / "report.md").read_text(encoding="utf-8")
    results, seeds = (
        {
            line.split("|")[1].strip(): [cell.strip() for cell in line.split("|")[2:-1]]
            for line in part.splitlines()
            if line.startswith("| ") and "--" not in line
        }
        for part in text.split("## The scale")[0].split("## What the seeds can tell")
    )
    assert set(results) - set(seeds) == {"C-ff4096", "D-p0.2", "E"}
    for name in set(seeds) & set(results) - {"row", "base"}:
        for column, start in (("PPL \u0394", 1), ("BLEU \u0394", 6)):
            bounds, verdict = seeds[name][start + 1 : start + 3]
            low, high = (float(end.replace("\u2212", "-")) for end in bounds.split(" to "))
            delta = results[name][results["row"].index(column)]
            assert delta.endswith("~") == (verdict == "within noise") == (low <= 0 <= high)
            middle = pytest.approx((low + high) / 2, abs=0.11)
            assert float(delta.strip("~").replace("\u2212", "-")) == middle
    assert (seeds["C-d1024"][1], seeds["C-d1024"][6]) == ("one seed", "one seed")
    assert "within noise of the base, marked ~." in text


def test_html_has_the_seeds_table_too(table3: Path) -> None:
    text = (table3 / "report.md").read_text(encoding="utf-8").split("## What the seeds can tell")[1]
    rows = rows_of(table3, 1)
    assert len(rows) == 17
    for cells in rows:
        line = next(line for line in text.splitlines() if line.startswith(f"| {cells[0]} "))
        assert [cell.strip() for cell in line.strip("|").split("|")] == cells


def test_seeds_that_the_base_lacks_tell_nothing_of_a_difference(tmp_path: Path) -> None:
    claim_plan(tmp_path, small_plan(seeds=[1, 2, 3]))
    finish(tmp_path, Cell("base", 1), bleu=80.0)
    for seed, bleu in ((2, 70.0), (3, 72.0)):
        finish(tmp_path, Cell("narrow", seed), bleu=bleu)
    text = to_text(write_report(tmp_path), 80)
    assert "No row has two seeds in common with the base" in text
    assert rows_of(tmp_path)[1][-2] == "\u2013"
    narrow = rows_of(tmp_path, 1)[1]
    assert narrow[1] == "0" and narrow[-5:] == ["58.3 to 83.7", "\u2013", "", "", ""]


def test_a_run_that_diverged_is_in_the_report(tmp_path: Path) -> None:
    claim_plan(tmp_path, small_plan(seeds=[1, 2]))
    for seed in (1, 2):
        finish(tmp_path, Cell("base", seed), bleu=80.0 + seed)
        finish(tmp_path, Cell("narrow", seed), perplexity=float("inf"), bleu=0.0)
    text = to_text(write_report(tmp_path), 80)
    assert "Perplexity: nothing can be said.\n" in text
    assert "BLEU: rows within noise of the base, 0 of 1.\n" in text
    narrow = rows_of(tmp_path, 1)[1]
    assert narrow[2:4] == ["not finite", "not finite"]


def test_one_seed_of_each_row_says_nothing_of_noise(tmp_path: Path) -> None:
    claim_plan(tmp_path, small_plan())
    for name in ("base", "narrow"):
        finish(tmp_path, Cell(name, 1))
    write_report(tmp_path)
    text = (tmp_path / "report.md").read_text(encoding="utf-8")
    assert "- No row has two seeds in common with the base, so nothing can be said" in text
    assert "seeds to tell" not in text and "~" not in text
    assert len(list(parsed(tmp_path).iter("table"))) == 3
