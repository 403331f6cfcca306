"""Warnings of a table, and the three places that print them."""

from __future__ import annotations

import dataclasses
import json
import re
from pathlib import Path

import pytest

from ablations.cli import PROGRAM
from ablations.tables.find import TABLES, load_table
from ablations.tables.plan import Plan, make_plan
from ablations.tables.scale import Scale
from ablations.tables.scales import QUICK, SCALES
from ablations.tables.table import Cell, Row, Table, row
from ablations.tables.table3 import BASE
from ablations.tables.warn import warnings_of
from experiments.records.result import save_result
from tests.ablations.samples import TINY, finish
from transformer.config import override
from transformer.errors import InputError


def plan_of(*rows: Row, scale: Scale = TINY, only: str = "", **base: int) -> Plan:
    table = Table(name="mine", title="Mine", base=override(BASE, **base), rows=rows)
    return make_plan(table, scale, [x for x in rows if not only or x.name == only], (1, 2))


# norms-early stops soon after the warm-up, or within it.
WITHOUT = [table for table in TABLES.values() if table.name != "norms-early"]


@pytest.mark.parametrize("table", WITHOUT, ids=lambda table: table.name)
def test_the_built_in_tables_have_none_at_any_scale(table: Table) -> None:
    task = table.base.data.corpus.task
    for scale in (*table.scales, *(x for x in SCALES if x.corpus.task == task)):
        try:
            plan = make_plan(table, scale, table.rows, (1,))
        except InputError as error:  # some scales have no French, or too few checkpoints
            assert "'fr'" in str(error) or "averages 5 checkpoints" in str(error)
            continue
        assert list(warnings_of(plan, ["H200"] * 3)) == []


def test_the_table_of_the_tutorial_has_none(tmp_path: Path) -> None:
    page = Path(__file__).parents[3] / "docs" / "tutorial.md"
    (code,) = re.findall(r"```python\n(.*?)```", page.read_text("utf-8"), re.DOTALL)
    (tmp_path / "mine.py").write_text(code)
    table = load_table(str(tmp_path / "mine.py"))
    assert list(warnings_of(make_plan(table, QUICK, table.rows, (1, 2, 3)), [])) == []


def test_a_warm_up_of_more_than_a_third_of_the_steps_is_named_with_its_rows() -> None:
    rows = (row("base"), row("short", max_steps=50_000), row("third", warmup_steps=500))
    (found,) = warnings_of(plan_of(*rows), [])
    assert found.startswith(
        "a warm-up of more than a third of the steps: 300 of 750 steps in short:"
    )
    (found,) = warnings_of(plan_of(rows[0], row("b", d_ff=1024), max_steps=50_000), [])
    assert ": 300 of 750 steps in all: raise max_steps, or lower warmup_steps" in found
    assert not list(warnings_of(plan_of(*rows, only="third"), []))


@pytest.mark.parametrize(
    ("rows", "only", "alike"),
    [
        ((row("base"), row("b", d_ff=1024), row("same", d_ff=2048)), "", "base and same"),
        # Alike at this scale only, which rounds the steps and sets the warm-up.
        ((row("base"), row("longer", max_steps=100_050)), "longer", "base and longer"),
        ((row("a", warmup_steps=300), row("b", d_ff=1024)), "", "the base and a"),
        (
            (row("base"), row("again"), row("c", d_ff=512), row("d", d_ff=512, warmup_steps=300)),
            "",
            "base and again; c and d",
        ),
        ((row("base"), row("c", d_ff=512), row("d", d_ff=512)), "d", ""),
    ],
)
def test_rows_that_are_trained_alike_are_named(
    rows: tuple[Row, ...], only: str, alike: str
) -> None:
    found = "".join(warnings_of(plan_of(*rows, only=only), []))
    assert found.startswith(
        f"rows with the same settings at scale tiny: {alike}: " if alike else ""
    )
    assert bool(found) == bool(alike)


@pytest.mark.usefixtures("undrawn")
def test_plan_run_and_the_report_print_them(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "pair.py").write_text(
        "from dataclasses import replace\n"
        "from tests.ablations.samples import SMALL_TABLE\n"
        "from transformer.config import override\n"
        "base = override(SMALL_TABLE.base, max_steps=50_000)\n"
        "TABLE = replace(SMALL_TABLE, base=base)\n"
    )
    root = tmp_path / "runs" / "pair-tiny"
    for seed, device in ((1, "H200"), (2, "AMD EPYC, 1 thread")):
        save = Cell("base", seed).directory(root)
        save_result(save, dataclasses.replace(finish(root, Cell("base", seed)), device=device))
    words = ["pair.py", "--scale", "tiny", "--rows", "base", "--seeds", "1,2"]
    warm_up = "a warm-up of more than a third of the steps: 300 of 750 steps in all: "
    devices = "times and speeds are from different devices, so their means say little: "
    devices += "H200 (runs: 1); AMD EPYC, 1 thread (runs: 1)"
    assert PROGRAM.run(["run", *words]) == 0  # whose runs are there already
    started, _, reported = capsys.readouterr().out.partition("2 of 2 already done")
    for text in (warm_up, devices):
        assert f"warning: {text}" in started and f"\n  {text}" in reported
        assert f"\n- {text}" in (root / "report.md").read_text("utf-8")
    assert PROGRAM.run(["plan", *words]) == 0
    planned = capsys.readouterr().out
    assert f"\nwarning: {warm_up}" in planned and f"\nwarning: {devices}\n" in planned
    assert PROGRAM.run(["plan", *words, "--json"]) == 0
    first, second = json.loads(capsys.readouterr().out)["warnings"]
    assert first.startswith(warm_up) and second == devices
