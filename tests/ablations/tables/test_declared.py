"""Tables 2 and 4 and that of changes since 2017: the declarations, their scales and reports."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from ablations.report.report import write_report
from ablations.tables import table2, table3, table4
from ablations.tables.changes import columns
from ablations.tables.find import find_scale, select_rows
from ablations.tables.plan import claim_plan, make_plan
from ablations.tables.scales import MEDIUM, QUICK, SMALL
from ablations.tables.since import TABLE as SINCE
from ablations.tables.table import Cell, Table, row
from ablations.tables.table3 import BASE
from experiments.catalog.find import find_experiment
from experiments.records.ownership import claim
from experiments.records.result import Parses, save_result
from tests.ablations.report.samples import tables
from tests.ablations.samples import result
from transformer.data.corpora.treebanks import TreebankText
from transformer.errors import InputError
from transformer.variants.layers import GeluTransformer

OURS = {"base-en-de": 27.3, "big-en-de": 28.4, "base-en-fr": 38.1, "big-en-fr": 41.8}
OTHERS = [
    *((23.75, None), (24.6, 2.3e19), (25.16, 9.6e18), (26.03, 2.0e19)),
    *((39.2, 1.0e20), (39.92, 1.4e20), (40.46, 1.5e20), (40.56, 1.2e20)),
]


def report(root: Path, table: Table, scale: str, runs: Mapping[str, Mapping[str, Any]]) -> None:
    """Leave a finished run with these figures in some rows, and write the report."""
    chosen = find_scale(table, scale)
    plan = claim_plan(root, make_plan(table, chosen, table.run_rows, [1]))
    for name, figures in runs.items():
        cell = Cell(name, 1)
        experiment = plan.experiment(cell)
        claim(cell.directory(root), experiment)
        made = dataclasses.replace(result(cell), experiment=experiment.name, **figures)
        save_result(cell.directory(root), made)
    write_report(root)


def test_table_2_has_the_papers_figures_and_others_are_never_run() -> None:
    table = table2.TABLE
    assert {row.name: row.reported.test_bleu for row in table.run_rows} == OURS
    assert {row.reported.flops for row in table.run_rows} == {3.3e18, 2.3e19}
    others = [(x.reported.test_bleu, x.reported.flops) for x in table.rows if x.published]
    assert others == OTHERS
    plan = make_plan(table, find_scale(table, "small"), table.rows, [1, 2])
    assert {cell.row for cell in plan.cells} == set(OURS) and len(plan.cells) == 8
    corpora = {name: config.data.corpus.name for name, config in plan.configs.items()}
    assert corpora == {name: f"multi30k_en_{name[-2:]}" for name in OURS}
    with pytest.raises(InputError, match="at scale 'quick': its corpora are in de, none in 'fr'"):
        make_plan(table, QUICK, table.rows, [1])
    with pytest.raises(InputError, match="unknown row 'ByteNet'"):
        select_rows(table, "ByteNet")


@pytest.mark.parametrize("name", OURS)
def test_at_the_papers_scale_a_row_is_the_experiment_of_that_name(name: str) -> None:
    plan = make_plan(table2.TABLE, find_scale(table2.TABLE, "paper"), table2.TABLE.run_rows, [1])
    size, language = name.removesuffix(name[-6:]), name[-2:]
    named = find_experiment(f"wmt14_en_{language}_{size}").config
    ours = plan.experiment(Cell(name, 1))
    assert ours.splits == ("valid", "test")
    assert (ours.config.model, ours.config.data) == (named.model, named.data)
    assert columns(ours.config) == columns(named)


@pytest.mark.usefixtures("undrawn")
def test_the_report_of_table_2_compares_each_language_with_itself(tmp_path: Path) -> None:
    figures = {"bleu": 30.0, "test_bleu": 31.5, "flops_nominal": 4e13}
    runs = {f"base-en-{x}": {**figures, "data_digest": x} for x in ("de", "fr")}
    report(tmp_path, table2.TABLE, "small", runs)
    rows = tables(tmp_path)[0]
    french = rows["base-en-fr"]
    assert (french["BLEU test"], french["BLEU test paper"]) == ("31.5", "38.1")
    assert not french.get("PPL Δ"), "it is of other text than the base's"
    flops = [french[x] for x in ("FLOPs", "FLOPs nominal", "FLOPs paper")]
    assert flops == ["1.5e13", "4e13", "3.3e18"]
    assert (rows["ByteNet"]["BLEU test"], rows["ByteNet"]["BLEU test paper"]) == ("", "23.8")
    assert rows["big-en-de"]["PPL"] == "missing"
    assert "None" not in (tmp_path / "table.tex").read_text()


def test_table_4_has_the_papers_parser_and_others_are_never_run() -> None:
    table, config = table4.TABLE, table4.TABLE.base
    model, decoding = config.model, config.decoding
    assert (model.num_layers, model.d_model, model.vocab_size) == (4, 1024, 16_000)
    assert (decoding.beam_size, decoding.length_penalty) == (21, 0.3)
    assert decoding.max_extra_length == 300
    assert [(row.name, row.reported.test_f1) for row in table.run_rows] == [("transformer", 91.3)]
    figures = [row.reported.test_f1 for row in table.rows if row.published]
    assert figures == [88.3, 90.4, 90.4, 91.7, 91.3, 91.3, 92.1, 92.1, 92.7, 93.0, 93.3]
    assert find_scale(table, "quick").corpus.name == "craft_12"
    with pytest.raises(InputError, match="unknown scale 'medium': known: paper, quick, small"):
        find_scale(table, "medium")
    assert find_scale(table3.TABLE, "medium") == MEDIUM


def test_the_papers_scale_of_table_4_needs_the_users_treebank(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    text = TreebankText.of(find_scale(table4.TABLE, "paper").corpus.valid.source.location)
    monkeypatch.delenv("PENN_TREEBANK", raising=False)
    with pytest.raises(InputError, match="set PENN_TREEBANK to the folder"):
        text.files()
    section = tmp_path / "parsed" / "mrg" / "wsj" / "22"
    section.mkdir(parents=True)
    (section / "wsj_2200.mrg").write_text("( (S (NN x)) )\n")
    monkeypatch.setenv("PENN_TREEBANK", str(tmp_path))
    assert [Path(file.location).name for file in text.files()] == ["wsj_2200.mrg"]


@pytest.mark.usefixtures("undrawn")
def test_the_report_of_table_4_has_f1_the_baseline_and_the_published_systems(
    tmp_path: Path,
) -> None:
    fixed: dict[str, Any] = {"precision": 81.0, "recall": 79.0, "exact_match": 9.0, "sentences": 7}
    of_valid = Parses(f1=80.0, baseline_f1=20.4, **fixed)
    of_test = Parses(f1=78.5, baseline_f1=19.6, **fixed)
    figures = {"bleu": None, "bleu_signature": None, "parses": of_valid, "test_parses": of_test}
    report(tmp_path, table4.TABLE, "quick", {"transformer": figures})
    rows = tables(tmp_path)[0]
    scores = ("F1", "F1 test", "F1 test paper")
    assert [rows["transformer"][x] for x in scores] == ["80.0", "78.5", "91.3"]
    assert rows["McClosky 2006, more text"]["F1 test paper"] == "92.1"
    text = (tmp_path / "report.md").read_text()
    assert "BLEU" not in text and "F1 of right-branching trees: 20.4 and 19.6" in text
    assert "McClosky" in (tmp_path / "report.html").read_text()


def test_each_row_of_since_is_one_change_to_the_papers_base() -> None:
    assert SINCE.base == BASE and not SINCE.rows[0].changes
    for each in SINCE.rows[1:]:
        assert each.reference in ("better", "same", "worse")
        more = set(each.changes) - {"model"}
        assert not more or each.name in ("adamw-cosine", "modern")
        for scale in (QUICK, SMALL):
            assert SINCE.configure(each, scale).model.model == each.changes["model"]


def test_a_row_takes_a_class_or_its_path_and_a_directory_no_other_source(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = "transformer.variants.layers:GeluTransformer"
    gelu = row("gelu", model=GeluTransformer)
    assert gelu.changes == row("gelu", model=path).changes
    with pytest.raises(InputError, match="row 'a': there is no Missing in"):
        row("a", model="transformer.variants.layers:Missing")
    own = Table(name="own", title="", base=BASE, rows=(gelu,))
    claim_plan(tmp_path, make_plan(own, QUICK, own.rows, [1]))
    monkeypatch.setattr("ablations.tables.table.variant_name", lambda _: "a:B@01234567")
    changed = dataclasses.replace(own, rows=(row("gelu", model=GeluTransformer),))
    with pytest.raises(InputError, match=r"rows\.gelu\.model: .*GeluTransformer@.* -> 'a:B@0"):
        claim_plan(tmp_path, make_plan(changed, QUICK, changed.rows, [1]))
