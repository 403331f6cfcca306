"""The plan in a table's directory: what it keeps and what it refuses."""

from __future__ import annotations

import re
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from ablations.report.numbers import compute_numbers
from ablations.tables.find import TABLES, find_scale
from ablations.tables.plan import Plan, claim_plan, load_plan, make_plan, settle_plan
from ablations.tables.scales import PAPER
from ablations.tables.table import Cell, Table, row
from ablations.tables.table3 import BASE, TABLE
from tests.ablations.samples import SMALL_TABLE, TINY, small_plan
from transformer.config import override
from transformer.errors import InputError


def test_a_plan_is_read_back_as_it_was_written(tmp_path: Path) -> None:
    plan = make_plan(TABLE, TINY, TABLE.rows, (1, 2))
    expected = replace(plan, base=override(plan.base, threads=1))
    assert claim_plan(tmp_path, plan) == load_plan(tmp_path) == expected
    assert len(plan.cells) == 40


@pytest.fixture
def any_precision(monkeypatch: pytest.MonkeyPatch) -> Plan:
    """A plan that leaves precision open, on a machine that multiplies bf16."""
    monkeypatch.setattr("ablations.tables.plan.faster_precision", lambda _: "bf16")
    plan = small_plan()
    return replace(plan, base=override(plan.base, precision="auto"))


def test_all_runs_of_a_table_share_precision_and_threads(
    tmp_path: Path, any_precision: Plan, monkeypatch: pytest.MonkeyPatch
) -> None:
    training = claim_plan(tmp_path, any_precision).base.training
    assert (training.precision, training.threads) == ("bf16", 1)
    monkeypatch.setattr("ablations.tables.plan.faster_precision", lambda _: "fp32")  # elsewhere
    assert claim_plan(tmp_path, any_precision).base.training == training


def test_a_user_chooses_precision_and_threads_once(tmp_path: Path, any_precision: Plan) -> None:
    chosen = settle_plan(tmp_path, any_precision, "fp32", 3)
    assert (chosen.base.training.precision, chosen.base.training.threads) == ("fp32", 3)
    claim_plan(tmp_path, chosen)
    assert claim_plan(tmp_path, any_precision).base == chosen.base
    with pytest.raises(InputError, match=r"base\.training\.precision: 'fp32' -> 'bf16'"):
        settle_plan(tmp_path, any_precision, "bf16")
    with pytest.raises(InputError, match=r"base\.training\.threads: 3 -> 2"):
        settle_plan(tmp_path, any_precision, threads=2)


@pytest.mark.parametrize("name", ["base", "A-h1", "big"])
def test_the_experiment_of_a_cell_is_the_row_with_what_the_scale_sets_for_it(
    tmp_path: Path, name: str
) -> None:
    plan = settle_plan(tmp_path, make_plan(TABLE, PAPER, TABLE.rows, (7,)), "fp32")
    claim_plan(tmp_path, plan)
    (found,) = (row for row in TABLE.rows if row.name == name)
    expected = override(TABLE.configure(found, PAPER), precision="fp32", threads=1)
    assert plan.configs[name] == expected
    experiment = plan.experiment(Cell(name, 7))
    assert experiment.config == override(expected, seed=7)
    assert experiment.name == experiment.group == f"table3-paper/{name}"
    assert experiment.tags == ("table3", "paper", name, "seed-7")
    assert name in [row.name for row in compute_numbers(tmp_path).rows]


def test_rows_and_seeds_are_added_even_by_concurrent_processes(tmp_path: Path) -> None:
    claim_plan(tmp_path, small_plan(rows=["base"], seeds=[2, 1]))
    grown = replace(SMALL_TABLE, rows=(*SMALL_TABLE.rows, row("new", num_layers=2)))
    claim_plan(tmp_path, make_plan(grown, TINY, [grown.rows[-1]], (3,)))
    assert load_plan(tmp_path).cells == (Cell("base", 1), Cell("base", 2), Cell("new", 3))
    with ThreadPoolExecutor(8) as pool:
        many = (make_plan(grown, TINY, grown.rows[:1], [seed]) for seed in range(16))
        list(pool.map(lambda plan: claim_plan(tmp_path, plan), many))
    assert load_plan(tmp_path).rows[0].seeds == tuple(range(16))


def test_another_table_scale_or_row_is_refused(tmp_path: Path) -> None:
    plan = claim_plan(tmp_path, small_plan())
    hotter = replace(TINY, settings={**TINY.settings, "warmup_steps": 400})
    changed = Table(name="pair", title="", base=BASE, rows=(row("base"), row("narrow", d_ff=256)))
    for table, scale, difference in (
        (SMALL_TABLE, hotter, r"base\.training\.warmup_steps: 300 -> 400.*--directory"),
        (changed, TINY, r"rows\.narrow\.d_ff: 128 -> 32"),
        (TABLE, TINY, r"another table \(table: 'pair' -> 'table3'\): choose"),
    ):
        with pytest.raises(InputError, match=difference):
            claim_plan(tmp_path, make_plan(table, scale, table.rows, (1,)))
    assert load_plan(tmp_path) == plan


_RESULTS = Path(__file__).parents[3] / "experiments" / "results"


@pytest.mark.parametrize("name", sorted(x.parent.name for x in _RESULTS.glob("*/table.json")))
def test_a_committed_table_is_configured_as_it_was(name: str) -> None:
    found = load_plan(_RESULTS / name)
    table = {**TABLES, **documented_tables()}[found.table]
    scale = find_scale(table, found.scale)
    plan = settle_plan(_RESULTS / name, make_plan(table, scale, table.run_rows, (1,)))
    assert plan.configs == found.configs


def documented_tables() -> dict[str, Table]:
    """The tables with a scale of their own in docs/tables.md and docs/variants.md."""
    docs = _RESULTS.parents[1] / "docs"
    text = "".join((docs / f"{page}.md").read_text("utf-8") for page in ("tables", "variants"))
    found: list[Table] = []
    for code in re.findall(r"```python\n(from [^`]*scales=[^`]*)```", text):
        names: dict[str, Any] = {}
        exec(code, names)
        found.append(names["TABLE"])
    return {table.name: table for table in found}


def test_a_directory_without_a_plan_is_named(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="is not the directory of a table"):
        load_plan(tmp_path)
    claim_plan(tmp_path / "pair-tiny", small_plan())
    with pytest.raises(InputError, match=rf"; one below it is {tmp_path}/pair-tiny$"):
        load_plan(tmp_path)
    (tmp_path / "table.json").write_text("{")
    with pytest.raises(InputError, match=r"table\.json cannot be read"):
        load_plan(tmp_path)
