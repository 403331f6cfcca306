"""Finished runs are copied without checkpoints, and a later run adds to them."""

from __future__ import annotations

import dataclasses
from pathlib import Path

import pytest

from ablations.report.numbers import compute_numbers
from ablations.tables.collect import copy_finished
from ablations.tables.plan import Plan, claim_plan, load_plan
from ablations.tables.table import Cell
from experiments.records.checksums import read_checksums, record_checksums
from experiments.records.ownership import claim
from experiments.records.result import load_result, save_result
from tests.ablations.samples import result, small_plan
from transformer.config import override

BASE, NARROW = Cell("base", 1), Cell("narrow", 1)


def finish(root: Path, plan: Plan, cell: Cell, perplexity: float = 5.0) -> None:
    """Leave what a finished run leaves."""
    directory = cell.directory(root)
    claim(directory, plan.experiment(cell))
    save_result(directory, result(cell, perplexity, 20.0))
    for name in ("data.json", "metrics.csv", "valid.hypotheses.txt", "log.txt"):
        (directory / name).write_text(f"{cell} {name}\n")
    (directory / "checkpoints").mkdir()


@pytest.fixture
def source(tmp_path: Path) -> Path:
    root = tmp_path / "source"
    plan = claim_plan(root, small_plan(seeds=[1, 2]))
    finish(root, plan, BASE)
    finish(root, plan, NARROW, 6.0)
    return root


def test_what_a_report_reads_is_copied(source: Path, tmp_path: Path) -> None:
    target = tmp_path / "target"
    part = target / "base/.seed-1.part"  # of a copy that was cut short
    part.mkdir(parents=True)
    (part / "result.json").write_text("{")
    assert copy_finished(source, target) == [BASE, NARROW]
    assert not part.exists()
    kept = {path.name for path in BASE.directory(target).iterdir()}
    files = {"config.json", "data.json", "metrics.csv", "result.json", "valid.hypotheses.txt"}
    assert kept == files
    assert load_plan(target).cells == (BASE, NARROW)  # seed 2 has not finished
    rows = {row.name: row.results for row in compute_numbers(target).rows}
    assert [rows["base"][0].perplexity, rows["narrow"][0].perplexity] == [5.0, 6.0]


def test_what_was_begun_there_stays(source: Path, tmp_path: Path) -> None:
    target = tmp_path / "target"
    plan = claim_plan(target, small_plan(rows=["base"], seeds=[3]))
    finish(target, plan, Cell("base", 3))
    BASE.directory(target).with_name("seed-1.attempt-2").mkdir()
    assert copy_finished(source, target) == [NARROW]
    assert load_result(BASE.directory(target)) is None
    assert load_plan(target).cells == (BASE, Cell("base", 3), NARROW)
    assert copy_finished(source, target) == []


def test_a_run_of_another_configuration_is_named(source: Path, tmp_path: Path) -> None:
    plan = load_plan(source)
    other = dataclasses.replace(plan, base=override(plan.base, warmup_steps=7))
    for path in BASE.directory(source).glob("config.json"):
        path.unlink()
    claim(BASE.directory(source), other.experiment(BASE))
    why = r"left out: .*base/seed-1 belongs to another configuration .*warmup_steps: 7 -> 300"
    with pytest.warns(UserWarning, match=why):
        assert copy_finished(source, tmp_path / "target") == [NARROW]


def test_a_run_that_changed_is_left_out_of_report_and_copy(source: Path, tmp_path: Path) -> None:
    directory, target = NARROW.directory(source), tmp_path / "target"
    for cell in (BASE, NARROW):
        found = load_result(cell.directory(source))
        assert found is not None
        record_checksums(cell.directory(source), found)
    path = directory / "result.json"
    path.write_text(path.read_text().replace('"bleu": 20.0', '"bleu": 30.0'))
    with pytest.warns(UserWarning, match=rf"left out: {path} changed since the run finished"):
        assert copy_finished(source, target) == [BASE]
    base, narrow = compute_numbers(source).rows
    assert len(base.results) == 1 and not narrow.results
    assert f"{path} changed since the run finished" in str(narrow.unfinished[0])
    copied = BASE.directory(target)
    assert sorted(read_checksums(copied)) == sorted(x.name for x in copied.glob("*.[cjt]*"))
    (copied / "metrics.csv").write_text("")
    assert not compute_numbers(target).results
