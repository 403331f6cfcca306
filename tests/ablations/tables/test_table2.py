"""The declaration of Table 2 against the paper, and what its rows become at a scale."""

from __future__ import annotations

import dataclasses
from pathlib import Path

import pytest

from ablations.report.report import write_report
from ablations.tables.changes import columns
from ablations.tables.find import find_scale, select_rows
from ablations.tables.plan import claim_plan, make_plan
from ablations.tables.scales import QUICK
from ablations.tables.table import Cell
from ablations.tables.table2 import TABLE
from experiments.catalog.find import find_experiment
from experiments.records.ownership import claim
from experiments.records.result import save_result
from tests.ablations.report.samples import tables
from tests.ablations.samples import result
from transformer.errors import InputError

OURS = {"base-en-de": 27.3, "big-en-de": 28.4, "base-en-fr": 38.1, "big-en-fr": 41.8}


def test_the_rows_have_the_papers_figures_and_others_are_never_run() -> None:
    ours = {row.name: row.reported.test_bleu for row in TABLE.run_rows}
    assert ours == OURS
    assert {row.reported.flops for row in TABLE.run_rows} == {3.3e18, 2.3e19}
    others = [(x.reported.test_bleu, x.reported.flops) for x in TABLE.rows if x.published]
    assert others == [
        (23.75, None),
        (24.6, 2.3e19),
        (25.16, 9.6e18),
        (26.03, 2.0e19),
        (39.2, 1.0e20),
        (39.92, 1.4e20),
        (40.46, 1.5e20),
        (40.56, 1.2e20),
    ]
    plan = make_plan(TABLE, find_scale(TABLE, "small"), select_rows(TABLE, None), [1, 2])
    assert {cell.row for cell in plan.cells} == set(OURS) and len(plan.cells) == 8
    with pytest.raises(InputError, match="unknown row 'ByteNet'"):
        select_rows(TABLE, "ByteNet")


@pytest.mark.parametrize("row", OURS)
def test_at_the_papers_scale_a_row_is_the_experiment_of_that_name(row: str) -> None:
    plan = make_plan(TABLE, find_scale(TABLE, "paper"), TABLE.run_rows, [1])
    size, language = row.removesuffix(row[-6:]), row[-2:]
    named = find_experiment(f"wmt14_en_{language}_{size}").config
    ours = plan.experiment(Cell(row, 1))
    assert ours.splits == ("valid", "test")
    assert (ours.config.model, ours.config.data) == (named.model, named.data)
    assert columns(ours.config) == columns(named)
    for field in ("average_checkpoints", "checkpoint_every_steps"):
        assert getattr(ours.config.training, field) == getattr(named.training, field), field


def test_small_has_a_corpus_for_each_language() -> None:
    plan = make_plan(TABLE, find_scale(TABLE, "small"), TABLE.run_rows, [1])
    corpora = {name: config.data.corpus.name for name, config in plan.configs.items()}
    assert corpora == {
        name: f"multi30k_en_{'de' if name.endswith('de') else 'fr'}" for name in OURS
    }
    with pytest.raises(InputError, match="at scale 'quick': its corpora are in de, none in 'fr'"):
        make_plan(TABLE, QUICK, TABLE.run_rows, [1])


def test_the_report_compares_each_language_with_itself(tmp_path: Path) -> None:
    scale = find_scale(TABLE, "small")
    plan = claim_plan(tmp_path, make_plan(TABLE, scale, TABLE.run_rows, [1]))
    for cell, digest in ((Cell("base-en-de", 1), "de"), (Cell("base-en-fr", 1), "fr")):
        experiment = plan.experiment(cell)
        claim(cell.directory(tmp_path), experiment)
        made = dataclasses.replace(
            result(cell, bleu=30.0),
            experiment=experiment.name,
            data_digest=digest,
            test_bleu=31.5,
            flops_nominal=4e13,
        )
        save_result(cell.directory(tmp_path), made)
    write_report(tmp_path)
    rows = tables(tmp_path)[0]
    french = rows["base-en-fr"]
    assert (french["BLEU test"], french["BLEU test paper"]) == ("31.5", "38.1")
    assert french["PPL Δ"] == "", "it is of other text than the base's"
    assert (french["FLOPs"], french["FLOPs nominal"], french["FLOPs paper"]) == (
        "1.5e13",
        "4e13",
        "3.3e18",
    )
    assert (rows["ByteNet"]["BLEU test"], rows["ByteNet"]["BLEU test paper"]) == ("", "23.8")
    assert rows["big-en-de"]["PPL"] == "missing"
    assert (tmp_path / "figures" / "bleu-flops.svg").is_file()
    assert "None" not in (tmp_path / "table.tex").read_text()
