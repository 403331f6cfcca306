"""The report of a search, from files alone."""

from __future__ import annotations

from pathlib import Path

import pytest

from ablations.report.page import Text
from ablations.report.plain import to_text
from ablations.runner.attempts import leave_pruned
from ablations.search.sampler import importances
from ablations.search.search import Search
from ablations.search.search_report import write_search_report
from ablations.search.spaces import REGULARISATION, SHAPE
from ablations.search.trials import read_trials
from ablations.tables.changes import Value
from tests.ablations.report.pages import drawn, marks, rows_of
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


def test_html_draws_each_trial(root: Path) -> None:
    figures = drawn(root)
    assert list(figures) == ["history", "curves", "importances", "parallel", "slices"]
    assert len(marks(figures["history"], "symbol")) == 11
    assert len(marks(figures["importances"], "rect")) == 2
    assert len(marks(figures["slices"], "symbol")) == 2 * 11
    text = (root / "report.html").read_text(encoding="utf-8")
    assert "&lt;Oops&gt; &amp; a | pipe" in text and "<Oops>" not in text


def test_the_parameter_that_matters_is_found(root: Path) -> None:
    search = small_search(root, trials=14)
    shares = importances(search, read_trials(search, root))
    assert list(shares) == ["learning_rate_factor", "warmup_steps"]
    assert sum(shares.values()) == pytest.approx(1.0)
    assert shares["learning_rate_factor"] > 0.6


def test_few_trials_have_no_importances(tmp_path: Path) -> None:
    search = small_search(tmp_path)
    text = to_text(write_search_report(tmp_path), 80)
    assert "No trial has finished yet." in text
    fill(tmp_path, search, 5)
    text = to_text(write_search_report(tmp_path), 80)
    assert "The best is trial-0003" in text
    assert "Fewer than 10 trials have ended, too few to tell what matters." in text
    assert "importances" not in drawn(tmp_path)


def test_notes_depend_on_the_space(tmp_path: Path) -> None:
    small_search(tmp_path / "a", space=REGULARISATION)
    notes = write_search_report(tmp_path / "a").part("How to read it", Text).content
    assert any("can raise BLEU" in note for note in notes)
    search = small_search(tmp_path / "b", space=SHAPE)
    notes = write_search_report(tmp_path / "b").part("How to read it", Text).content
    assert f"No model has more than {search.max_parameters:,} parameters" in "\n".join(notes)
    assert "d_v takes the value of d_k." in notes
