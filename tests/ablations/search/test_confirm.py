"""The best trials and the base, planned again with seeds that the search never saw."""

from __future__ import annotations

import dataclasses
from pathlib import Path

import pytest

from ablations.files import CONFIRM
from ablations.search.confirm import plan_confirmation
from ablations.search.search_report import write_search_report
from ablations.search.trials import read_trials
from ablations.tables.plan import claim_plan, load_plan
from experiments.records.result import save_result
from tests.ablations.samples import result
from tests.ablations.search.samples import bowl, leave, small_search
from transformer import formats
from transformer.errors import InputError

FACTORS = (0.2, 0.65, 3.0, 0.8)


@pytest.fixture
def root(tmp_path: Path) -> Path:
    search = small_search(tmp_path, trials=5)
    leave(search, tmp_path / search.names[0], search.first(), perplexity=3.1)  # the base, second
    for name, factor in zip(search.names[1:], FACTORS, strict=True):
        values = {"learning_rate_factor": factor, "warmup_steps": 101}
        leave(search, tmp_path / name, values, perplexity=bowl(values))
    return tmp_path


def test_the_best_are_planned_as_rows_with_fresh_seeds(root: Path) -> None:
    search = small_search(root, trials=5)
    plan = plan_confirmation(search, read_trials(search, root), 2, root)
    assert [row.name for row in plan.rows] == ["base", "trial-0002", "trial-0004"]
    assert {row.seeds for row in plan.rows} == {(2, 3, 4)} and search.base.training.seed == 1
    config = plan.rows[1].configure(plan.base)
    assert config.training.learning_rate_factor == 0.65 and config.training.warmup_steps == 101
    assert plan.rows[0].configure(plan.base) == search.base


def test_rows_of_an_earlier_confirmation_stay(root: Path) -> None:
    search = small_search(root, trials=5)
    trials = read_trials(search, root)
    claim_plan(root / CONFIRM, plan_confirmation(search, trials, 1, root))
    now_better = {"learning_rate_factor": FACTORS[3], "warmup_steps": 101}
    leave(search, root / search.names[4], now_better, perplexity=2.9)
    claim_plan(root / CONFIRM, plan_confirmation(search, read_trials(search, root), 1, root))
    rows = load_plan(root / CONFIRM).rows
    assert [row.name for row in rows] == ["base", "trial-0002", "trial-0004"]


@pytest.mark.parametrize("count", [0, 5])
def test_more_than_have_finished_are_refused(root: Path, count: int) -> None:
    search = small_search(root, trials=5)
    with pytest.raises(InputError, match=f"--confirm is {count}, but 4 trials other than the base"):
        plan_confirmation(search, read_trials(search, root), count, root)


def test_the_report_of_the_search_has_their_differences(root: Path) -> None:
    search = small_search(root, trials=5)
    plan = plan_confirmation(search, read_trials(search, root), 1, root)
    claim_plan(root / CONFIRM, plan)
    for cell in plan.cells:
        perplexity = (3.0 if cell.row == "base" else 2.5) + 0.01 * cell.seed
        made = result(cell, perplexity)
        named = dataclasses.replace(made, experiment=f"{plan.table}-{plan.scale}/{cell.row}")
        cell.directory(root / CONFIRM).mkdir(parents=True)
        save_result(cell.directory(root / CONFIRM), named)
    write_search_report(root)
    page = (root / "report.md").read_text()
    assert "## Trained again with other seeds" in page
    (line,) = (x for x in page.splitlines() if x.startswith("| trial-0002 ") and "±" in x)
    assert "2.530 ± 0.010" in line and formats.difference(-0.5, 3) in line
