"""The report of a search, from files alone."""

from __future__ import annotations

import math
from collections.abc import Sequence
from pathlib import Path

import pytest

from ablations.runner.attempts import leave_pruned
from ablations.search.plot import history
from ablations.search.report import to_text, write_search_report
from ablations.search.search import Search
from ablations.search.space import Value
from ablations.search.spaces import REGULARISATION, SHAPE
from ablations.search.study import importances
from ablations.search.trials import Trial, read_trials
from experiments.run.progress import RunState
from tests.ablations.report.pages import parsed, rows_of
from tests.ablations.search.samples import bowl, give_up, leave, small_search

FACTORS = (0.2, 0.5, 0.7, 0.8, 0.9, 1.1, 1.5, 2.1, 2.5, 3.1, 3.5)


def values(index: int) -> dict[str, Value]:
    return {"learning_rate_factor": FACTORS[index], "warmup_steps": 101 + 37 * (5 * index % 11)}


def fill(root: Path, search: Search, count: int) -> None:
    """``count`` trials that ended: every third was pruned."""
    every = search.base.training.validate_every_steps
    for index, name in enumerate(search.names[:count]):
        perplexity = bowl(values(index))
        if index % 3 == 2:
            leave(search, root / name, values(index), until=every, perplexity=perplexity)
            leave_pruned(root / name, every, 9 * perplexity)
        else:
            leave(search, root / name, values(index), perplexity=perplexity, bleu=30.0 + index)


@pytest.fixture(scope="module")
def root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Eleven trials that ended, one given up, one under way, one that nobody has begun."""
    directory = tmp_path_factory.mktemp("search")
    search = small_search(directory, trials=14)
    fill(directory, search, 11)
    give_up(search, directory, search.names[11], values(0), "RuntimeError: <Oops> & a | pipe")
    leave(search, directory / f"{search.names[12]}.attempt-1", values(1), until=0)
    write_search_report(directory)
    return directory


def test_markdown_and_html_show_the_same_trials(root: Path) -> None:
    text = (root / "report.md").read_text(encoding="utf-8")
    lines = [line for line in text.splitlines() if line.startswith("|")]
    assert "14 trials: 8 done, 3 pruned, 1 failed, 1 running, 1 waiting." in text
    shown = rows_of(root, table=1)
    assert [row[0] for row in shown] == [f"{number:04}" for number in range(13)]
    for row in shown:
        line = next(line for line in lines if line.startswith(f"| {row[0]} "))
        assert [cell.strip() for cell in line.strip("|").split("|")] == row
    best = next(row for row in shown if row[1] == "best")
    assert best[0] == "0003" and best[-2:] == ["0.8", str(values(3)["warmup_steps"])]
    assert rows_of(root)[2] == ["learning-rate factor", "0.5", "0.8"]


def test_html_draws_history_and_importances_and_needs_no_other_file(root: Path) -> None:
    page = parsed(root)
    assert not [tag for name in ("link", "script", "img") for tag in page.iter(name)]
    drawn, shares = page.iter("svg")
    assert len(list(drawn.iter("circle"))) == 11
    assert len(list(drawn.iter("polyline"))) == 1
    assert len(list(shares.iter("rect"))) == 2
    text = (root / "report.html").read_text(encoding="utf-8")
    assert "&lt;Oops&gt; &amp; a | pipe" in text and "<Oops>" not in text


def test_what_matters_is_found(root: Path) -> None:
    search = small_search(root, trials=14)
    shares = importances(search, read_trials(search, root))
    assert list(shares) == ["learning_rate_factor", "warmup_steps"]
    assert sum(shares.values()) == pytest.approx(1.0)
    assert shares["learning_rate_factor"] > 0.6


def test_few_trials_say_what_they_cannot_tell(tmp_path: Path) -> None:
    search = small_search(tmp_path)
    text = to_text(write_search_report(tmp_path))
    assert "No trial has finished yet." in text
    fill(tmp_path, search, 5)
    text = to_text(write_search_report(tmp_path))
    assert "The best is trial-0003" in text
    assert "Fewer than 10 trials have ended, too few to tell which parameters matter." in text
    assert len(list(parsed(tmp_path).iter("svg"))) == 1


def test_what_a_space_needs_to_be_read_aright_is_said(tmp_path: Path) -> None:
    small_search(tmp_path / "a", space=REGULARISATION)
    assert any("can raise BLEU" in note for note in write_search_report(tmp_path / "a").notes)
    search = small_search(tmp_path / "b", space=SHAPE)
    notes = write_search_report(tmp_path / "b").notes
    assert f"No model has more than {search.max_parameters:,} parameters" in "\n".join(notes)
    assert "d_v is as d_k." in notes


def some(perplexities: Sequence[float | None]) -> list[Trial]:
    return [
        Trial(
            name=f"trial-{i:04}",
            state=RunState.DONE if value else RunState.FAILED,
            perplexity=value,
        )
        for i, value in enumerate(perplexities)
    ]


def test_the_line_of_the_best_falls_in_steps() -> None:
    plot = history(some([5.0, None, 7.0, 3.0, 4.0]))
    assert plot is not None
    heights = {trial: dot.y for trial, dot in zip((0, 2, 3, 4), plot.dots, strict=True)}
    xs = {trial: dot.x for trial, dot in zip((0, 2, 3, 4), plot.dots, strict=True)}
    assert plot.best == (
        (xs[0], heights[0]), (xs[3], heights[0]), (xs[3], heights[3]), (xs[4], heights[3]),
    )  # fmt: skip
    assert plot.top <= heights[2] < heights[0] < heights[4] < heights[3] <= plot.bottom


@pytest.mark.parametrize("values", [(3.0, 3.0), (3.0, 3.001), (2.5, 9e5), (1.01, 1.3, 1e300)])
def test_any_values_have_ticks_within_the_figure(values: tuple[float, ...]) -> None:
    plot = history(some(values))
    assert plot is not None
    assert len(plot.y_ticks) >= 2
    assert all(plot.top <= y <= plot.bottom for y, _ in plot.y_ticks)
    assert all(math.isfinite(dot.y) for dot in plot.dots)


def test_one_value_is_no_figure() -> None:
    assert history(some([5.0])) is None
