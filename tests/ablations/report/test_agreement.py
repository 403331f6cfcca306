"""Ours against the paper: signs, the figure, and the scale's numbers."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from pathlib import Path

import pytest

from ablations.report.agreement import agreement, agreements
from ablations.report.plot import figure
from ablations.report.regime import regime, warning
from ablations.report.report import write_report
from ablations.report.summary import Summary, summarise
from ablations.tables.plan import claim_plan, make_plan
from ablations.tables.table import Cell, Table, row
from ablations.tables.table3 import BASE
from tests.ablations.report.pages import parsed
from tests.ablations.samples import TINY, finish, result, small_plan
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


def test_each_row_agrees_or_not_and_all_are_counted(tmp_path: Path) -> None:
    summary = fill(tmp_path, (1, 2, 3))
    assert kinds(summary) == ["agrees", "within noise", "contradicts", "none in paper"]
    perplexity, bleu = agreements(summary)
    counts = (
        ", 4 row(s): agree beyond noise 1, within noise 1, contradict beyond noise 1 (against), "
        "no difference in the paper 1 (equal)."
    )
    assert perplexity == f"Perplexity, sign of Δ beside that of the paper's Δ{counts}"
    assert bleu == f"BLEU, sign of Δ beside that of the paper's Δ{counts}"


def test_one_seed_shows_signs_alone(tmp_path: Path) -> None:
    summary = fill(tmp_path, (1,))
    assert kinds(summary) == ["same sign", "other sign", "other sign", "none in paper"]
    write_report(tmp_path)
    caption = "".join(next(parsed(tmp_path).iter("figcaption")).itertext())
    assert caption.startswith("Perplexity, differences to the base") and "interval" not in caption
    assert "standard deviation" not in caption


def test_a_table_says_which_interval_it_used(tmp_path: Path) -> None:
    fill(tmp_path / "alike", (1, 2, 3))
    write_report(tmp_path / "alike")
    text = (tmp_path / "alike" / "report.md").read_text()
    assert "Perplexity: the bounds of Δ are by Student's t with the spread pooled over" in text
    assert "Perplexity, all rows at once (Dunnett's test, 5 %" in text
    assert "of 4, 3 differ from the base, all but noise." in text
    fill(tmp_path / "mixed", (1, 2, 3))
    finish(tmp_path / "mixed", Cell("equal", 2), perplexity=99.0, bleu=29.0)
    write_report(tmp_path / "mixed")
    text = (tmp_path / "mixed" / "report.md").read_text()
    assert "Perplexity: the bounds of Δ are by Student's t for each row alone" in text
    assert "Perplexity, all rows at once" not in text and "BLEU, all rows at once" in text


def test_the_figure_has_a_point_for_each_row_with_its_interval(tmp_path: Path) -> None:
    drawn = figure(fill(tmp_path, (1, 2, 3)), "perplexity", "Perplexity")
    assert drawn is not None
    points = {point.name: point for point in drawn.points}
    assert set(points) == set(OURS) - {"base"}
    left, top, right, bottom = drawn.box
    for point in points.values():
        assert left <= point.x <= right
        assert top <= point.high < point.y < point.low <= bottom
    across, up = drawn.zero
    assert points["agrees"].x > across and points["agrees"].y < up
    assert points["against"].x < across and points["against"].y < up
    assert [points[name].style for name in ("agrees", "noise", "against")] == [
        "ours",
        "theirs",
        "contradicts",
    ]
    heights = [points[name].label for name in ("noise", "against")]  # which lie side by side
    assert abs(heights[0] - heights[1]) >= 9


def test_no_figure_without_the_papers_figures(tmp_path: Path) -> None:
    claim_plan(tmp_path, small_plan(["base", "free"]))
    for name in ("base", "free"):
        finish(tmp_path, Cell(name, 1))
    assert figure(summarise(tmp_path), "bleu", "BLEU") is None


def test_the_papers_own_numbers_are_not_far() -> None:
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
    assert warning(numbers) == ""


@pytest.mark.parametrize(
    ("config", "text"),
    [
        (override(BASE, schedule="linear"), "last learning rate over its peak"),
        (override(BASE, max_steps=10_000), "warm-up share of the steps 0.4 (paper 0.04)"),
    ],
)
def test_a_scale_far_from_the_papers_numbers_is_warned_of(config: Config, text: str) -> None:
    found = warning(regime(config, None))
    assert found.startswith("More than a factor of 3 from the paper's: ") and text in found


def test_results_without_the_corpus_show_dashes() -> None:
    old = dataclasses.replace(result(Cell("base", 1)), corpus_target_tokens=None)
    cells = {number.name: number.cells[1] for number in regime(BASE, old)}
    assert cells["epochs"] == cells["tokens of a batch over those of the corpus"] == "\u2013"
    assert cells["target tokens seen per parameter"] == "1.56"
