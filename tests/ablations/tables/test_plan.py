"""A table's directory: the plan in it, and what of it is copied."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from ablations.folder import TableFolder
from ablations.folder.table import tuned_plan
from ablations.report.numbers import compute_numbers
from ablations.runs.reuse import Earlier
from ablations.tables.find import TABLES, find_scale
from ablations.tables.plan import Plan, make_plan
from ablations.tables.plan_file import claim_plan, load_plan, settle_plan
from ablations.tables.scales import PAPER
from ablations.tables.table import Cell, Table, row
from ablations.tables.table3 import TABLE
from experiments.records.checksums import read_checksums, record_checksums
from experiments.records.ownership import claim
from experiments.records.result import load_result, save_result
from tests.ablations.samples import SMALL_TABLE, TINY, result, small_plan
from tests.samples import new_run, write_corpus
from transformer.config import override, text_settings
from transformer.data.corpora.folders import folder_corpus
from transformer.errors import InputError
from transformer.files import visible
from transformer.variant import current


@pytest.fixture
def any_precision(monkeypatch: pytest.MonkeyPatch) -> Plan:
    """A plan that leaves precision open, on a machine that multiplies bf16."""
    monkeypatch.setattr("ablations.tables.plan_file.faster_precision", lambda _: "bf16")
    plan = small_plan()
    return replace(plan, base=override(plan.base, precision="auto"))


def test_all_runs_of_a_table_share_precision_and_threads(
    tmp_path: Path, any_precision: Plan, monkeypatch: pytest.MonkeyPatch
) -> None:
    training = claim_plan(tmp_path, any_precision).base.training
    assert (training.precision, training.threads) == ("bf16", 1)
    monkeypatch.setattr(
        "ablations.tables.plan_file.faster_precision", lambda _: "fp32"
    )  # elsewhere
    assert claim_plan(tmp_path, any_precision).base.training == training


def test_a_user_chooses_precision_and_threads_once(tmp_path: Path, any_precision: Plan) -> None:
    def choose(**settings: Any) -> Plan:
        base = override(any_precision.base, **settings)
        return settle_plan(tmp_path, replace(any_precision, base=base))

    chosen = choose(precision="fp32", threads=3)
    assert (chosen.base.training.precision, chosen.base.training.threads) == ("fp32", 3)
    claim_plan(tmp_path, chosen)
    assert claim_plan(tmp_path, any_precision).base == chosen.base
    with pytest.raises(InputError, match=r"another table \(precision: 'fp32' -> 'bf16'\)"):
        choose(precision="bf16")
    with pytest.raises(InputError, match=r"another table \(threads: 3 -> 2\)"):
        choose(threads=2)


@pytest.mark.parametrize("name", ["base", "A-h1", "big"])
def test_the_experiment_of_a_cell_is_the_row_with_what_the_scale_sets_for_it(
    tmp_path: Path, name: str
) -> None:
    plan = settle_plan(tmp_path, make_plan(TABLE, PAPER, TABLE.rows, (7,)))
    (found,) = (row for row in TABLE.rows if row.name == name)
    expected = override(TABLE.configure(found, PAPER), precision="fp32", threads=1)
    assert plan.configs[name] == expected
    experiment = plan.experiment(Cell(name, 7))
    assert experiment.config == override(expected, seed=7)
    assert experiment.name == experiment.group == f"table3-paper/{name}"
    assert experiment.tags == ("table3", "paper", name, "seed-7")


def test_rows_and_seeds_are_added_even_by_concurrent_processes(tmp_path: Path) -> None:
    claim_plan(tmp_path, small_plan(rows=["base"], seeds=[2, 1]))
    grown = replace(SMALL_TABLE, rows=(*SMALL_TABLE.rows, row("new", num_layers=2)))
    claim_plan(tmp_path, make_plan(grown, TINY, [grown.rows[-1]], (3,)))
    assert load_plan(tmp_path).cells == (Cell("base", 1), Cell("base", 2), Cell("new", 3))
    with ThreadPoolExecutor(8) as pool:
        many = (make_plan(grown, TINY, grown.rows[:1], [seed]) for seed in range(16))
        list(pool.map(lambda plan: claim_plan(tmp_path, plan), many))
    assert load_plan(tmp_path).rows[0].seeds == tuple(range(16))


def test_another_table_or_scale_is_refused(tmp_path: Path) -> None:
    plan = claim_plan(tmp_path, small_plan())
    for table, scale, difference in (
        (SMALL_TABLE, replace(TINY, name="other"), r"another table \(scale: 'tiny' -> 'other'\)"),
        (TABLE, TINY, r"another table \(table: 'pair' -> 'table3'\): choose"),
    ):
        with pytest.raises(InputError, match=difference):
            claim_plan(tmp_path, make_plan(table, scale, table.rows, (1,)))
    assert load_plan(tmp_path) == plan


_RESULTS = Path(__file__).parents[3] / "experiments" / "results"


@pytest.mark.parametrize("name", sorted(x.parent.name for x in _RESULTS.glob("*/table.json")))
def test_a_committed_table_is_configured_as_it_was(name: str) -> None:
    root = _RESULTS / name
    found = load_plan(root)
    table = {**TABLES, **documented_tables()}[found.table]
    scale = find_scale(table, found.scale)
    plan = tuned_plan(make_plan(table, scale, table.run_rows, (1,)), root)
    plan = settle_plan(root, plan)
    as_it_was, as_it_is = (  # of the rows that were collected
        {row: current(each.configs[row]).without_folders for row in found.configs}
        for each in (found, plan)
    )
    assert as_it_is == as_it_was


def documented_tables() -> dict[str, Table]:
    """The tables of the pages that have a scale of their own and committed results."""
    docs = _RESULTS.parents[1] / "docs"
    pages = [docs / "own-tables.md", *sorted((docs / "results").glob("*.md"))]
    text = "".join(page.read_text("utf-8") for page in pages)
    found: list[Table] = []
    for code in re.findall(r"```python\n(from [^`]*scales=[^`]*)```", text):
        names: dict[str, Any] = {}
        exec(code, names)
        found.append(names["TABLE"])
    return {table.name: table for table in found}


@pytest.mark.parametrize("name", ["../other", "a\0b", "\x1b[2J", "a" * 100_000, "", "figures"])
def test_a_row_whose_name_is_no_folders_is_refused_in_a_plan_too(tmp_path: Path, name: str) -> None:
    claim_plan(tmp_path, small_plan())
    path = tmp_path / "table.json"
    written = json.loads(path.read_text())
    written["rows"][1]["name"] = name
    path.write_text(json.dumps(written))
    with pytest.raises(InputError, match=r"table\.json does not fit .*: row name .* may have only"):
        load_plan(tmp_path)
    written["rows"][1] |= {"published": True}
    path.write_text(json.dumps(written))
    with pytest.raises(InputError, match="is only shown, but has seeds"):
        load_plan(tmp_path)
    written["rows"][1] |= {"seeds": []}  # which has no folder
    path.write_text(json.dumps(written))
    assert load_plan(tmp_path).rows[1].name == visible(name)


def test_a_directory_above_that_of_a_table_is_told_apart(tmp_path: Path) -> None:
    claim_plan(tmp_path / "pair-tiny", small_plan())
    with pytest.raises(InputError, match=rf"; one below it is {tmp_path}/pair-tiny$"):
        load_plan(tmp_path)


FIRST, SECOND = Cell("base", 1), Cell("narrow", 1)


def finish(root: Path, plan: Plan, cell: Cell, perplexity: float = 5.0) -> None:
    """Leave what a finished run leaves."""
    directory = cell.directory(root)
    new_run(directory, plan.experiment(cell))
    save_result(directory, result(cell, perplexity, 20.0))
    for name in ("data.json", "metrics.csv", "valid.hypotheses.txt", "log.txt"):
        (directory / name).write_text(f"{cell} {name}\n")
    (directory / "checkpoints").mkdir()


@pytest.fixture
def source(tmp_path: Path) -> Path:
    root = tmp_path / "source"
    plan = claim_plan(root, small_plan(seeds=[1, 2]))
    finish(root, plan, FIRST)
    finish(root, plan, SECOND, 6.0)
    return root


Share = Callable[[Path, Path], list[str]]


@pytest.fixture(params=["collect", "copy"])
def share(request: pytest.FixtureRequest) -> Share:
    """Adds what has finished in a folder to another, as lines or as folders."""

    def copy(source: Path, target: Path) -> list[str]:
        plan = replace(small_plan(seeds=[]), base=load_plan(source).base)
        earlier = Earlier(source, plan)
        claim_plan(target, earlier.add_seeds(plan))
        return earlier.copy(target)

    def collect(source: Path, target: Path) -> list[str]:
        return TableFolder(source).collect(target)

    return copy if request.param == "copy" else collect


def test_what_a_report_reads_is_copied(source: Path, tmp_path: Path, share: Share) -> None:
    target = tmp_path / "target"
    part = target / "base/.seed-1.part"  # of a copy that was cut short
    part.mkdir(parents=True)
    (part / "result.json").write_text("{")
    assert share(source, target) == [str(FIRST), str(SECOND)]
    kept = {path.name for path in TableFolder(target).read(str(FIRST)).files.iterdir()}
    files = {"config.json", "data.json", "metrics.csv", "result.json", "valid.hypotheses.txt"}
    assert kept == files
    assert load_plan(target).cells == (FIRST, SECOND)  # seed 2 has not finished
    rows = {row.name: row.results for row in compute_numbers(TableFolder(target)).rows}
    assert [rows["base"][0].perplexity, rows["narrow"][0].perplexity] == [5.0, 6.0]


def test_a_file_in_place_of_the_directory_is_named(
    source: Path, tmp_path: Path, share: Share
) -> None:
    (tmp_path / "target").touch()
    with pytest.raises(InputError, match="target cannot be made"):
        share(source, tmp_path / "target")


def test_what_was_begun_there_stays(source: Path, tmp_path: Path, share: Share) -> None:
    target = tmp_path / "target"
    plan = claim_plan(target, small_plan(rows=["base"], seeds=[3]))
    finish(target, plan, Cell("base", 3))
    FIRST.directory(target).with_name("seed-1.attempt-2").mkdir()
    assert share(source, target) == [str(SECOND)]
    assert TableFolder(target).read(str(FIRST)).result is None
    assert load_plan(target).cells == (FIRST, Cell("base", 3), SECOND)
    assert share(source, target) == []


@pytest.mark.slow
def test_shards_that_copy_the_same_runs_do_not_disturb_each_other(
    tmp_path: Path, share: Share
) -> None:
    source, target = tmp_path / "source", tmp_path / "target"
    plan = claim_plan(source, small_plan(rows=["base"], seeds=range(1, 21)))
    for cell in plan.cells:
        finish(source, plan, cell)
    with ThreadPoolExecutor(4) as shards:
        copied = shards.map(lambda _: share(source, target), range(4))
        assert sorted(map(len, copied)) == [0, 0, 0, 20]


def test_text_may_lie_elsewhere_on_another_machine(tmp_path: Path) -> None:
    def plan(machine: str, seeds: Sequence[int]) -> Plan:
        text = write_corpus(tmp_path / machine / "numbers")
        scale = replace(TINY, corpus=folder_corpus(text))
        return make_plan(SMALL_TABLE, scale, SMALL_TABLE.rows, seeds)

    one, other = claim_plan(tmp_path / "a", plan("laptop", [1])), plan("cluster", [2])
    finish(tmp_path / "a", one, FIRST)
    assert TableFolder(tmp_path / "a").collect(tmp_path / "b") == [str(FIRST)]
    both = claim_plan(tmp_path / "b", other)
    assert "cluster" in str(both.base) and both.rows[0].seeds == (1, 2)
    assert compute_numbers(TableFolder(tmp_path / "b")).rows[0].results
    share = text_settings(other.base), text_settings(one.base)
    assert share[0] == share[1] != text_settings(override(one.base, max_length=9))


def test_a_run_of_another_configuration_is_named(source: Path, tmp_path: Path) -> None:
    plan = load_plan(source)
    other = replace(plan, base=override(plan.base, warmup_steps=7))
    for path in FIRST.directory(source).glob("config.json"):
        path.unlink()
    claim(FIRST.directory(source), other.experiment(FIRST))
    why = r"left out: base/seed-1 is stale \(training\.warmup_steps: 7 -> 300\)"
    with pytest.warns(UserWarning, match=why):
        assert TableFolder(source).collect(tmp_path / "target") == [str(SECOND)]


def test_a_run_that_changed_is_left_out_of_report_and_copy(source: Path, tmp_path: Path) -> None:
    directory, target = SECOND.directory(source), tmp_path / "target"
    for cell in (FIRST, SECOND):
        found = load_result(cell.directory(source))
        assert found is not None
        save_result(cell.directory(source), record_checksums(cell.directory(source), found))
    path = directory / "result.json"
    path.write_text(path.read_text().replace('"bleu": 20.0', '"bleu": 30.0'))
    with pytest.warns(UserWarning, match=rf"left out: {path} changed since the run finished"):
        assert TableFolder(source).collect(target) == [str(FIRST)]
    base, narrow = compute_numbers(TableFolder(source)).rows
    assert len(base.results) == 1 and not narrow.results
    assert f"{path} changed since the run finished" in narrow.unfinished[0].problem
    copied = TableFolder(target).read(str(FIRST)).files
    assert read_checksums(copied) == read_checksums(FIRST.directory(source))
    plan = claim_plan(tmp_path / "copied", load_plan(source))
    assert Earlier(source, plan).copy(tmp_path / "copied") == [str(FIRST)]
    (FIRST.directory(tmp_path / "copied") / "metrics.csv").write_text("")
    assert not compute_numbers(TableFolder(tmp_path / "copied")).results
