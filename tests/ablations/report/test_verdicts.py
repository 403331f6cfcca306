"""What a report concludes: noise, agreement with the paper, the figure, the regime."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from pathlib import Path

import pytest

from ablations.report.figures import agreement_figures
from ablations.report.notes import regime, regime_warning
from ablations.report.plain import to_text
from ablations.report.report import write_report
from ablations.report.summary import Summary, summarise
from ablations.report.verdicts import agreement, verdicts
from ablations.tables.plan import claim_plan, make_plan
from ablations.tables.table import Cell, Table, row
from ablations.tables.table3 import BASE
from tests.ablations.report.pages import parsed, rows_of, tables
from tests.ablations.samples import SMALL_TABLE, TINY, finish, result, small_plan
from transformer.config import Config, override

SIGNS = Table(
    name="pair",
    title="Signs",
    base=BASE,
    rows=(
        row("base", 5.0, 25.0),
        row("agrees", 6.0, 24.0, d_ff=1024),
        row("noise", 4.5, 26.0, d_ff=512),
        row("against", 4.0, 26.0, d_ff=256),
        row("equal", 5.0, 25.0, d_ff=128),
    ),
)
OURS = {"base": 8.0, "agrees": 10.0, "noise": 8.05, "against": 9.0, "equal": 11.0}


def fill(root: Path, seeds: Sequence[int], ours: Mapping[str, float] = OURS) -> Summary:
    """A table of which all but the base and ``noise`` differ clearly."""
    claim_plan(root, make_plan(SIGNS, TINY, SIGNS.rows, seeds))
    for index, (name, value) in enumerate(ours.items()):
        for seed in seeds:
            jitter = 0.05 * ((index + seed) % 3)
            finish(root, Cell(name, seed), perplexity=value + jitter, bleu=40 - value - jitter)
    return summarise(root)


def kinds(summary: Summary) -> list[str]:
    """How each row agrees in perplexity."""
    return [agreement(summary, row, "perplexity") for row in summary.rows[1:]]


def test_agreement_of_each_row_and_their_counts(tmp_path: Path) -> None:
    summary = fill(tmp_path, (1, 2, 3))
    assert kinds(summary) == ["agrees", "within noise", "contradicts", "none in paper"]
    *_, perplexity, bleu = verdicts(summary)
    counts = (
        ", 4 row(s): agree beyond noise 1, within noise 1, contradict beyond noise 1 (against), "
        "no difference in the paper 1 (equal)."
    )
    assert perplexity == f"Perplexity, sign of Δ compared with the paper's{counts}"
    assert bleu == f"BLEU, sign of Δ compared with the paper's{counts}"


def test_rows_that_are_all_noise_are_counted_once(tmp_path: Path) -> None:
    summary = fill(tmp_path, (1, 2, 3), dict.fromkeys(OURS, 8.0))
    assert any(text.endswith(": 0 of 4 differ from the base.") for text in verdicts(summary))


def test_one_seed_shows_signs_only(tmp_path: Path) -> None:
    summary = fill(tmp_path, (1,))
    assert kinds(summary) == ["same sign", "other sign", "other sign", "none in paper"]
    write_report(tmp_path)
    caption = "".join(next(parsed(tmp_path).iter("figcaption")).itertext())
    assert caption.startswith("Perplexity: each row's difference") and "interval" not in caption
    assert "standard deviation" not in caption


def test_a_table_says_which_interval_it_used(tmp_path: Path) -> None:
    fill(tmp_path / "alike", (1, 2, 3))
    write_report(tmp_path / "alike")
    text = (tmp_path / "alike" / "report.md").read_text()
    assert "Perplexity: the interval of Δ is by Student's t with the spread pooled over" in text
    assert "Perplexity, all rows together (Dunnett's test, 5 %" in text
    assert "3 of 4 differ from the base, all but noise." in text
    fill(tmp_path / "mixed", (1, 2, 3))
    finish(tmp_path / "mixed", Cell("equal", 2), perplexity=99.0, bleu=29.0)
    write_report(tmp_path / "mixed")
    text = (tmp_path / "mixed" / "report.md").read_text()
    assert "Perplexity: the interval of Δ is by Student's t for each row alone" in text
    assert "Perplexity, all rows together" not in text and "BLEU, all rows together" in text


@pytest.mark.parametrize("has_base", [True, False])
def test_a_report_without_a_base_says_why_there_are_no_differences(
    tmp_path: Path, has_base: bool
) -> None:
    own = dataclasses.replace(SMALL_TABLE, rows=SMALL_TABLE.rows[0 if has_base else 1 :])
    claim_plan(tmp_path, make_plan(own, TINY, own.rows[-1:], (1,)))
    finish(tmp_path, Cell("free", 1))
    remedy = "run --rows base trains it" if has_base else 'add row("base") to the table'
    sentence = f"No base was run, so there are no differences (Δ) to show: {remedy}."
    assert sentence in to_text(write_report(tmp_path), 100)


def test_noise_is_marked_and_explained(table3: Path) -> None:
    """A difference carries the mark where its own interval contains 0, and only there."""
    text = (table3 / "report.md").read_text(encoding="utf-8")
    results, seeds = (
        {
            line.split("|")[1].strip(): [cell.strip() for cell in line.split("|")[2:-1]]
            for line in part.splitlines()
            if line.startswith("| ") and "--" not in line
        }
        for part in text.split("## Cost")[0].split("## What the seeds show")
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
    text = (table3 / "report.md").read_text(encoding="utf-8").split("## What the seeds show")[1]
    rows = rows_of(table3, 1)
    assert len(rows) == 17
    for cells in rows:
        line = next(line for line in text.splitlines() if line.startswith(f"| {cells[0]} "))
        assert [cell.strip() for cell in line.strip("|").split("|")] == cells


def test_seeds_that_the_base_lacks_do_not_count(tmp_path: Path) -> None:
    claim_plan(tmp_path, small_plan(seeds=[1, 2, 3]))
    finish(tmp_path, Cell("base", 1), bleu=80.0)
    for seed, bleu in ((2, 70.0), (3, 72.0)):
        finish(tmp_path, Cell("narrow", seed), bleu=bleu)
    text = to_text(write_report(tmp_path), 80)
    assert "No row has two seeds in common with the base" in text
    assert rows_of(tmp_path)[1][-4] == "\u2013"
    narrow = rows_of(tmp_path, 1)[1]
    assert narrow[1] == "0" and narrow[-5:] == ["58.3 to 83.7", "\u2013", "", "", ""]


def test_the_base_alone_is_not_compared(tmp_path: Path) -> None:
    claim_plan(tmp_path, small_plan(seeds=[1, 2]))
    for seed in (1, 2):
        finish(tmp_path, Cell("base", seed), perplexity=8.0 + seed, bleu=80.0 + seed)
    write_report(tmp_path)
    assert rows_of(tmp_path, 1) == [["base", "2", "3.147 to 15.853", "75.1 to 87.9"]]


def test_a_run_that_diverged_is_in_the_report(tmp_path: Path) -> None:
    claim_plan(tmp_path, small_plan(seeds=[1, 2]))
    for seed in (1, 2):
        finish(tmp_path, Cell("base", seed), bleu=80.0 + seed)
        finish(tmp_path, Cell("narrow", seed), perplexity=float("inf"), bleu=0.0)
    text = to_text(write_report(tmp_path), 80)
    assert "Perplexity: noise cannot be judged.\n" in text
    assert "BLEU: 0 of 1 rows are within noise of the base.\n" in text
    narrow = rows_of(tmp_path, 1)[1]
    assert narrow[2:4] == ["not finite", "not finite"]


def test_one_seed_of_each_row_cannot_judge_noise(tmp_path: Path) -> None:
    claim_plan(tmp_path, small_plan())
    for name in ("base", "narrow"):
        finish(tmp_path, Cell(name, 1))
    write_report(tmp_path)
    text = (tmp_path / "report.md").read_text(encoding="utf-8")
    assert "- No row has two seeds in common with the base, so noise cannot be" in text
    assert "seeds needed" not in text and "~" not in text
    assert len(tables(tmp_path)) == 3


def test_the_figure_has_a_point_for_each_row_with_its_interval(tmp_path: Path) -> None:
    figures = {x.name: x.spec for x in agreement_figures(fill(tmp_path, (1, 2, 3)))}
    points = {x["row"]: x for x in figures["agreement-perplexity"]["data"]["values"]}
    assert set(points) == set(OURS) - {"base"}
    assert all(x["low"] < x["ours"] < x["high"] for x in points.values())
    assert points["agrees"]["paper"] > 0 < points["agrees"]["ours"]
    assert points["against"]["paper"] < 0 < points["against"]["ours"]
    assert [points[name]["agreement"] for name in ("agrees", "noise", "against")] == [
        "agrees",
        "within noise",
        "contradicts",
    ]


def test_no_figure_without_the_papers_figures(tmp_path: Path) -> None:
    claim_plan(tmp_path, small_plan(["base", "free"]))
    for name in ("base", "free"):
        finish(tmp_path, Cell(name, 1))
    assert not list(agreement_figures(summarise(tmp_path)))


def test_the_papers_own_numbers_are_near() -> None:
    paper = dataclasses.replace(
        result(Cell("base", 1)),
        steps=100_000,
        target_tokens=2_500_000_000,
        corpus_target_tokens=130_000_000,
        parameters=65_000_000,
    )
    numbers = regime(BASE, paper)
    for number in numbers:
        assert number.ours == pytest.approx(number.paper, rel=0.05)
    assert regime_warning(numbers) == ""


@pytest.mark.parametrize(
    ("config", "text"),
    [
        (override(BASE, schedule="linear"), "last learning rate over its peak"),
        (override(BASE, max_steps=10_000), "warm-up share of the steps 0.4 (paper 0.04)"),
    ],
)
def test_a_scale_far_from_the_papers_numbers_is_warned_of(config: Config, text: str) -> None:
    found = regime_warning(regime(config, None))
    assert found.startswith("More than a factor of 3 from the paper's: ") and text in found


def test_old_results_without_corpus_tokens_show_dashes() -> None:
    old = dataclasses.replace(result(Cell("base", 1)), corpus_target_tokens=None)
    cells = {number.name: number.cells[1] for number in regime(BASE, old)}
    assert cells["epochs"] == cells["tokens of a batch over those of the corpus"] == "\u2013"
    assert cells["target tokens seen per parameter"] == "1.56"
