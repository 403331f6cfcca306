"""A table's measures may be functions of the user."""

from __future__ import annotations

import csv
import dataclasses
import math
import sys
from collections.abc import Callable
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any, cast

import pytest

from ablations.cli import report
from ablations.folder import TableFolder
from ablations.report.numbers import compute_numbers
from ablations.tables import BASE, Table, measure, row
from ablations.tables.find import load_table
from ablations.tables.own_measures import OwnMeasure
from ablations.tables.plan import Plan, make_plan
from ablations.tables.plan_file import claim_plan, load_plan
from ablations.tables.table import Cell
from experiments.evaluate import own_measures
from experiments.evaluate.translator import Text
from experiments.records.outputs import hypotheses_path
from experiments.records.result import load_result, save_result
from tests.ablations.report.samples import tables
from tests.ablations.samples import TINY, Call, prepare_stand_ins, result, started
from tests.test_readme import snippet
from transformer import formats
from transformer.errors import InputError

MINE = """
from dataclasses import replace
from ablations.tables import measure
from tests.ablations.samples import SMALL_TABLE


def errors(sources, hypotheses, references):
    return sum(x != y for x, y in zip(hypotheses, references, strict=True))


TABLE = replace(
    SMALL_TABLE, name="mine",
    measures=("perplexity", "bleu", measure(errors, higher_is_better=False, digits=1)),
)
"""
RUN = "run mine.py --scale tiny --rows base,narrow --seeds 1,2 --directory out --log none"


def good(sources: list[str], hypotheses: list[str], references: list[str]) -> float:
    del sources, references
    return len(hypotheses)


def planned(*measures: Any) -> Plan:
    table = Table(name="t", title="T", base=BASE, rows=(row("base"),), measures=measures)
    return make_plan(table, TINY, table.rows, (1,))


def test_a_function_or_its_name_is_a_measure() -> None:
    plan = planned("perplexity", good, f"{__file__}:good_too")
    assert plan.measures == ("perplexity", "good", "good_too")
    (found, _), names = plan.own_measures, plan.experiment(plan.cells[0]).own_measures
    assert names == tuple(each.function for each in plan.own_measures)
    assert found.function.startswith("test_own_measures:good@")
    own = plan.compared[1]
    assert (own.title, own.direction, own.key) == ("Good", "maximize", found.function[18:])
    assert plan.valid_measures == ("perplexity",)  # the values of a trial, which all runs have


def good_too(sources: list[str], hypotheses: list[str], references: list[str]) -> float:
    return good(sources, hypotheses, references)


def bleu(sources: list[str], hypotheses: list[str], references: list[str]) -> float:
    return good(sources, hypotheses, references)


@pytest.mark.parametrize(
    ("declare", "message"),
    [
        (lambda: measure(cast(Any, lambda x: x)), "must take sources, translations and references"),
        (lambda: measure(lambda x, y, z: 1.0), "there is no .*<lambda> in"),
        (lambda: measure(bleu), "a measure of your own cannot be called bleu: rename it"),
        (lambda: OwnMeasure(function="m:dropout@1", label="x"), "cannot be called dropout"),
        (lambda: OwnMeasure(function="m:state@1", label="x"), "cannot be called state"),
        (lambda: measure(good, " "), "needs a label"),
        (lambda: measure(good, digits=10), "0 to 9 digits"),
        (lambda: measure("nowhere_at_all:good"), "nowhere_at_all, which is not installed"),
        (lambda: planned("perplexity", good, good), "has the measure 'good' twice"),
        (lambda: planned(good), "needs a validation score, such as perplexity"),
    ],
)
def test_a_measure_that_cannot_be_is_refused(declare: Callable[[], object], message: str) -> None:
    with pytest.raises(InputError, match=message):
        declare()


@pytest.mark.usefixtures("undrawn")
def test_a_report_compares_rows_by_it_and_leaves_scores_of_another_source_out(
    tmp_path: Path,
) -> None:
    (tmp_path / "mine.py").write_text(MINE)
    table = load_table(str(tmp_path / "mine.py"))
    root = tmp_path / "out"
    plan = claim_plan(root, make_plan(table, TINY, table.rows[:2], (1, 2, 3)))
    key = plan.compared[2].key
    scores = {"base": (20.0, 24.0, 22.0), "narrow": (16.0, 20.0, 17.5)}
    for name, values in scores.items():
        for seed, value in enumerate(values, 1):
            made = result(Cell(name, seed), 3.0 + 0.1 * seed, 80.0)
            made = dataclasses.replace(made, experiment=f"mine-tiny/{name}")
            found = {} if (name, seed) == ("narrow", 3) else {key: value, "errors@0": 99.0}
            (root / name / f"seed-{seed}").mkdir(parents=True)
            save_result(root / name / f"seed-{seed}", dataclasses.replace(made, own_scores=found))
    report(root)
    base, narrow = tables(root)[0].values()
    assert base["errors"] == "22.0 ± 2.0"
    assert (narrow["errors"], narrow["errors Δ"]) == ("18.0 ± 2.8", formats.difference(-4.0, 1))
    score = compute_numbers(TableFolder(root)).rows[1].scores["errors"]
    assert score.verdict == "better"  # fewer errors, without noise
    assert score.difference is not None and math.isclose(score.difference.mean, -4.0)
    text = (root / "report.md").read_text("utf-8")
    assert "errors: 1 of 6 finished runs have no score by the current function" in text
    lines = list(csv.reader((root / "results.csv").read_text("utf-8").splitlines()))
    column = lines[0].index("errors")
    assert [line[column] for line in lines[1:]] == ["20.0", "24.0", "22.0", "16.0", "20.0", ""]
    records = TableFolder(root).records()
    assert [record["errors"] for record in records] == [20.0, 24.0, 22.0, 16.0, 20.0, None]


@pytest.mark.slow
def test_run_again_scores_finished_runs_and_trains_nothing(
    out: Path, call: Call, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The stand-ins of runs write no translations, so the test does."""
    file = out.with_name("mine.py")
    file.write_text(MINE.replace(", measure(errors, higher_is_better=False, digits=1)", ""))
    prepare_stand_ins(out, {})
    assert call(RUN)[0] == 0
    cells = [Cell(name, seed) for name in ("base", "narrow") for seed in (1, 2)]
    for number, cell in enumerate(cells):
        lines = ["eins"] * number + ["zwei"] * (5 - number)
        text = "".join(f"{line}\n" for line in lines)
        hypotheses_path(cell.directory(out), "valid").write_text(text)
    references = ["eins"] * 5
    monkeypatch.setattr(own_measures, "text_of_split", lambda *_: Text(["one"] * 5, references))
    file.write_text(MINE)
    code, shown = call(RUN)
    assert code == 0 and "4 finished runs scored by the table's own measures" in shown
    assert len(started(out)) == 4
    key = load_plan(out).compared[2].key
    results = [load_result(cell.directory(out)) for cell in cells]
    assert [x and x.own_scores for x in results] == [{key: 5.0 - number} for number in range(4)]
    assert "finished runs scored" not in call(RUN)[1]


@pytest.mark.slow
def test_a_function_that_fails_is_not_called_for_each_run(
    out: Path, call: Call, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = out.with_name("mine.py")
    file.write_text(MINE)
    prepare_stand_ins(out, {})
    call(RUN)
    for seed in (1, 2):
        hypotheses_path(Cell("base", seed).directory(out), "valid").write_text("eins\n" * 3)
    text = Text(["one"] * 5, ["eins"] * 5)
    monkeypatch.setattr(own_measures, "text_of_split", lambda *_: text)
    with pytest.warns(UserWarning, match="no score by errors, which failed: ValueError") as warned:
        assert call(RUN)[0] == 0
    assert len([x for x in warned if "no score" in str(x.message)]) == 1


def test_the_documented_measure_calls_comet_as_its_documentation_does(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A stand-in for the library, which is not installed here."""
    asked: list[Any] = []

    class Model:
        def predict(self, data: list[dict[str, str]], batch_size: int, gpus: int) -> Any:
            asked.append((data, batch_size, gpus))
            return SimpleNamespace(scores=[0.5, 0.7], system_score=0.6)

    comet = cast(Any, ModuleType("comet"))
    comet.download_model = lambda name: f"path of {name}"
    comet.load_from_checkpoint = lambda path: asked.append(path) or Model()
    monkeypatch.setitem(sys.modules, "comet", comet)
    (tmp_path / "my_table.py").write_text(snippet("from comet import", "own-tables"))
    table = load_table(str(tmp_path / "my_table.py"))
    (own,) = make_plan(table, TINY, table.rows, (1,)).own_measures
    text = Text(["one", "two"], ["eins", "zwei"])
    found = own_measures.own_scores([own.function], text, ["einz", "zwo"])
    assert list(found.values()) == [0.6] and own.label == "COMET"
    assert asked[0] == "path of Unbabel/wmt22-comet-da"
    assert asked[1][0][1] == {"src": "two", "mt": "zwo", "ref": "zwei"}
