"""The declaration of Table 4, its scales and its report."""

from __future__ import annotations

import dataclasses
from pathlib import Path

import pytest

from ablations.report.report import write_report
from ablations.tables.find import find_scale
from ablations.tables.plan import claim_plan, make_plan
from ablations.tables.scales import MEDIUM
from ablations.tables.table import Cell
from ablations.tables.table3 import TABLE as TABLE3
from ablations.tables.table4 import TABLE
from experiments.records.ownership import claim
from experiments.records.result import Parses, save_result
from tests.ablations.report.samples import tables
from tests.ablations.samples import result
from transformer.data.corpora.treebanks import TreebankText
from transformer.errors import InputError

PARSES = Parses(
    precision=81.0,
    recall=79.0,
    f1=80.0,
    exact_match=30.0,
    baseline_f1=20.4,
    sentences=700,
)


def test_the_base_is_the_papers_and_others_are_never_run() -> None:
    config = TABLE.base
    assert (config.model.num_layers, config.model.d_model, config.model.vocab_size) == (
        4,
        1024,
        16_000,
    )
    decoding = config.decoding
    assert (decoding.beam_size, decoding.length_penalty, decoding.max_extra_length) == (
        21,
        0.3,
        300,
    )
    assert [(row.name, row.reported.test_f1) for row in TABLE.run_rows] == [("transformer", 91.3)]
    figures = [row.reported.test_f1 for row in TABLE.rows if row.published]
    assert figures == [88.3, 90.4, 90.4, 91.7, 91.3, 91.3, 92.1, 92.1, 92.7, 93.0, 93.3]


def test_only_scales_of_trees_fit() -> None:
    assert find_scale(TABLE, "quick").corpus.name == "craft_12"
    with pytest.raises(InputError, match="unknown scale 'medium': known: paper, quick, small"):
        find_scale(TABLE, "medium")
    assert find_scale(TABLE3, "medium") == MEDIUM


def test_the_papers_scale_needs_the_users_treebank(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    text = TreebankText.of(find_scale(TABLE, "paper").corpus.valid.source.location)
    monkeypatch.delenv("PENN_TREEBANK", raising=False)
    with pytest.raises(InputError, match="set PENN_TREEBANK to the folder"):
        text.files()
    section = tmp_path / "parsed" / "mrg" / "wsj" / "22"
    section.mkdir(parents=True)
    (section / "wsj_2200.mrg").write_text("( (S (NN x)) )\n")
    monkeypatch.setenv("PENN_TREEBANK", str(tmp_path))
    assert [Path(file.location).name for file in text.files()] == ["wsj_2200.mrg"]


def test_the_report_has_f1_the_baseline_and_the_published_systems(tmp_path: Path) -> None:
    plan = claim_plan(tmp_path, make_plan(TABLE, find_scale(TABLE, "quick"), TABLE.run_rows, [1]))
    cell = Cell("transformer", 1)
    experiment = plan.experiment(cell)
    claim(cell.directory(tmp_path), experiment)
    made = dataclasses.replace(
        result(cell),
        experiment=experiment.name,
        bleu=None,
        bleu_signature=None,
        parses=PARSES,
        test_parses=dataclasses.replace(PARSES, f1=78.5, baseline_f1=19.6),
    )
    save_result(cell.directory(tmp_path), made)
    write_report(tmp_path)
    rows = tables(tmp_path)[0]
    scores = ("F1", "F1 test", "F1 test paper")
    assert [rows["transformer"][x] for x in scores] == ["80.0", "78.5", "91.3"]
    assert rows["McClosky 2006, more text"]["F1 test paper"] == "92.1"
    text = (tmp_path / "report.md").read_text()
    assert "BLEU" not in text and "F1 of right-branching trees: 20.4 and 19.6" in text
    assert "McClosky" in (tmp_path / "report.html").read_text()
