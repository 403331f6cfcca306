"""Committed results are runs of the tables as they are declared now."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from ablations.runs.reuse import Earlier
from ablations.tables.find import TABLES, Selection
from ablations.tables.plan_file import load_plan
from tests.ablations.samples import Call, prepare_stand_ins, started

RESULTS = Path(__file__).parents[3] / "experiments" / "results"
COMMITTED = sorted(
    path.parent.name
    for path in RESULTS.glob("*/table.json")
    if load_plan(path.parent).table in TABLES
)


@pytest.mark.parametrize("name", COMMITTED)
def test_each_committed_run_is_one_of_its_table(name: str) -> None:
    """Also those of classes that have moved since."""
    committed = load_plan(RESULTS / name)
    plan, _ = Selection(scale=committed.scale).plan(TABLES[committed.table])
    plan = replace(plan, base=replace(plan.base, training=committed.base.training))
    grown = Earlier(RESULTS / name, plan).add_seeds(plan)
    assert {*committed.cells} <= {*grown.cells}


@pytest.mark.slow
def test_changes_since_2017_are_not_trained_again(out: Path, call: Call) -> None:
    prepare_stand_ins(out, {})
    earlier = RESULTS / "since-small"
    code, shown = call(
        f"run since --scale small --seeds 1-3 --directory out --from {earlier} --log none"
    )
    assert code == 0 and "57 finished runs taken from" in shown
    assert started(out) == []
    assert "57 of 57 runs finished" in (out / "report.md").read_text()
