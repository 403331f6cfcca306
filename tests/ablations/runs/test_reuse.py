"""Committed results are runs of the tables as they are declared now."""

from __future__ import annotations

import shutil
from dataclasses import replace
from pathlib import Path

import pytest

from ablations.collect import rename_runs
from ablations.folder import TableFolder
from ablations.runs.reuse import Earlier
from ablations.tables.find import TABLES, Selection
from ablations.tables.plan_file import load_plan
from tests.ablations.report.samples import fill
from transformer.errors import InputError

RESULTS = Path(__file__).parents[3] / "experiments" / "results"


def test_runs_of_classes_that_have_moved_since_are_found() -> None:
    """Those of the committed table ``since``."""
    committed = load_plan(RESULTS / "since-small")
    plan, _ = Selection(scale=committed.scale).plan(TABLES[committed.table])
    plan = replace(plan, base=replace(plan.base, training=committed.base.training))
    grown = Earlier(RESULTS / "since-small", plan).add_seeds(plan)
    assert {*committed.cells} <= {*grown.cells}


def test_runs_without_a_configuration_are_named(tmp_path: Path) -> None:
    fill(tmp_path, {"base": {1: 8.0}})
    with pytest.raises(InputError, match=r"no run of this table: base/seed-1 has no config\.json"):
        Earlier(tmp_path, load_plan(tmp_path))


def test_lines_of_a_table_inside_another_folder_are_renamed_there(tmp_path: Path) -> None:
    root = tmp_path / "search"
    shutil.copytree(RESULTS / "search-base_lr-small", root)
    before = {**TableFolder(root / "confirm").collection.lines}
    rename_runs(TableFolder(root / "confirm").collection, {"base/seed-2": "replaced/base/seed-2.1"})
    after = TableFolder(root / "confirm").collection.lines
    assert {*before} - {*after} == {"base/seed-2"} and len(after) == len(before)
    assert after["replaced/base/seed-2.1"].result == before["base/seed-2"].result
    assert not (root / "confirm/runs.jsonl").exists()
