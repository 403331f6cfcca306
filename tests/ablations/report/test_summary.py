"""The numbers of a report."""

from __future__ import annotations

import dataclasses
import json
import shutil
from pathlib import Path

import pytest

from ablations.report.page import Facts, Text
from ablations.report.report import compose, write_report
from ablations.report.summary import summarise
from ablations.tables.plan import claim_plan, make_plan
from ablations.tables.table import Cell, Table, row
from ablations.tables.table3 import BASE
from experiments.run.experiment import claim
from experiments.run.results import save_result
from tests.ablations.samples import TINY, finish, small_plan
from transformer.errors import InputError


def test_means_and_spreads(tmp_path: Path) -> None:
    claim_plan(tmp_path, small_plan(seeds=[1, 2, 3]))
    for seed, bleu in ((1, 80.0), (2, 81.0), (3, 82.0)):
        finish(tmp_path, Cell("base", seed), bleu=bleu)
    finish(tmp_path, Cell("narrow", 1), bleu=70.0)
    finish(tmp_path, Cell("narrow", 3), bleu=72.0)
    summary = summarise(tmp_path)
    base, narrow = summary.rows
    mean = base.scores["bleu"]
    assert (mean.mean, mean.deviation, mean.count) == (81.0, 1.0, 3)
    assert narrow.scores["bleu"].deviation == pytest.approx(2**0.5)
    assert [u.cell for u in narrow.unfinished] == [Cell("narrow", 2)]
    assert summary.base is base


def test_intervals_end_where_the_score_does(tmp_path: Path) -> None:
    claim_plan(tmp_path, small_plan(seeds=[1, 2]))
    for seed, bleu in ((1, 96.0), (2, 98.0)):
        finish(tmp_path, Cell("base", seed), bleu=bleu, perplexity=seed + 0.5)
        finish(tmp_path, Cell("narrow", seed), bleu=20.0 * seed, perplexity=2.0)
    summary = summarise(tmp_path)
    base, narrow = summary.rows
    ends = [base.scores[name].interval for name in ("bleu", "perplexity")]
    assert ends == [(pytest.approx(84.2938, abs=1e-4), 100), (1, pytest.approx(8.3531, abs=1e-4))]
    difference = summary.difference(narrow, "bleu")
    assert difference is not None and difference.interval is not None
    assert difference.interval[0] == -100


def test_one_seed_has_no_spread(tmp_path: Path) -> None:
    claim_plan(tmp_path, small_plan())
    finish(tmp_path, Cell("base", 1))
    summary = summarise(tmp_path)
    assert summary.rows[0].scores["bleu"].deviation is None
    assert not summary.pools


def _finish_on(root: Path, digests: dict[int, str | None], name: str = "base") -> None:
    for seed, digest in digests.items():
        made = finish(root, Cell(name, seed), bleu=80.0 + seed)
        save_result(Cell(name, seed).directory(root), dataclasses.replace(made, data_digest=digest))


def test_runs_on_other_data_are_named_and_not_averaged(tmp_path: Path) -> None:
    claim_plan(tmp_path, small_plan(seeds=[1, 2, 3]))
    _finish_on(tmp_path, {1: "other", 2: "most", 3: "most"})
    _finish_on(tmp_path, {1: "most", 2: None, 3: "third"}, "narrow")
    summary = summarise(tmp_path)
    base, narrow = summary.rows
    mean = base.scores["bleu"]
    assert (mean.mean, mean.count) == (82.5, 2)
    assert [result.seed for result in narrow.results] == [1, 2], "unknown data is accepted"
    page = compose(summary)
    assert page.part("Not finished", Text).content == (
        "base, seed 1: left out: its data is other, that of most runs is most",
        "narrow, seed 3: left out: its data is third, that of most runs is most",
    )
    facts = page.part("Set-up", Facts).content
    assert ("data", "most (runs: 3); not recorded (narrow/seed-2)") in facts


def test_rows_may_have_text_of_their_own(tmp_path: Path) -> None:
    """Another vocabulary or limit of length makes other prepared data."""
    rows = (row("base"), row("words", vocab_size=900), row("batch", tokens_per_batch=700))
    own = Table(name="pair", title="", base=BASE, rows=rows)
    claim_plan(tmp_path, make_plan(own, TINY, own.rows, (1, 2)))
    _finish_on(tmp_path, {1: "most", 2: "most"})
    _finish_on(tmp_path, {1: "of 900", 2: "of 900"}, "words")
    _finish_on(tmp_path, {1: "most", 2: "other"}, "batch")
    summary = summarise(tmp_path)
    assert [len(found.results) for found in summary.rows] == [2, 2, 1]
    # Perplexity with other word-pieces has another scale, and so another spread.
    assert summary.pools["bleu"].freedom == 1 and "perplexity" not in summary.pools
    assert str(summary.rows[2].unfinished[0]).endswith("other, that of most runs is most")


def test_runs_that_average_fewer_checkpoints_are_named(tmp_path: Path) -> None:
    claim_plan(tmp_path, small_plan(seeds=[1, 2, 3]))
    for seed, count in {1: 5, 2: 4, 3: 5}.items():  # one of seed 2's was damaged
        made = finish(tmp_path, Cell("base", seed))
        changed = dataclasses.replace(made, averaged_checkpoints=count)
        save_result(Cell("base", seed).directory(tmp_path), changed)
    facts = dict(compose(summarise(tmp_path)).part("Set-up", Facts).content)
    assert facts["checkpoints averaged"] == "5 (runs: 2); 4 (base/seed-2)"


def test_results_of_versions_that_did_not_record_data_are_averaged(tmp_path: Path) -> None:
    claim_plan(tmp_path, small_plan(seeds=[1, 2, 3]))
    _finish_on(tmp_path, {1: None, 2: None, 3: None})
    for seed in (1, 2, 3):  # as older versions wrote them
        path = Cell("base", seed).directory(tmp_path) / "result.json"
        values = json.loads(path.read_text())
        del values["data_digest"]
        path.write_text(json.dumps(values))
    summary = summarise(tmp_path)
    assert summary.rows[0].scores["bleu"].count == 3
    assert "data" not in dict(compose(summary).part("Set-up", Facts).content)


def test_invalid_results_are_left_out_with_the_reason(tmp_path: Path) -> None:
    plan = claim_plan(tmp_path, small_plan(seeds=[1, 2, 3, 5, 7]))
    for seed in (1, 2, 3, 5, 7, 11):
        finish(tmp_path, Cell("base", seed))
        if seed < 11:
            cell = Cell("base", seed)
            claim(cell.directory(tmp_path), plan.experiment(cell))
    folder = tmp_path / "base"
    (folder / "seed-2" / "result.json").write_text('{"experiment": "pai')
    (folder / "seed-3" / "config.json").write_text('{"name": "pai')
    shutil.copy(folder / "seed-1" / "result.json", folder / "seed-5" / "result.json")
    config = folder / "seed-7" / "config.json"
    config.write_text(config.read_text().replace('"vocab_size": 4000', '"vocab_size": 8000'))
    summary = summarise(tmp_path)
    assert [result.seed for result in summary.results] == [1]
    reasons = {each.cell.seed: each.left_out or "" for each in summary.rows[0].unfinished}
    assert list(reasons) == [2, 3, 5, 7]
    assert "seed-2/result.json cannot be read as JSON" in reasons[2]
    assert "seed-3/config.json cannot be read as JSON" in reasons[3]
    assert reasons[5].endswith("seed-5/result.json is of pair-tiny/base, seed 1")
    assert "model.vocab_size: 8000 -> 4000" in reasons[7]
    write_report(tmp_path)
    text = (tmp_path / "report.md").read_text()
    assert "- base, seed 7: left out: " in text
    assert "- base/seed-11: left out, as table.json does not list it" in text


def test_a_cell_of_another_scale_is_left_out(tmp_path: Path) -> None:
    claim_plan(tmp_path, small_plan())
    path = tmp_path / "base" / "seed-1" / "result.json"
    finish(tmp_path, Cell("base", 1))
    path.write_text(path.read_text().replace("pair-tiny", "pair-small"))
    (unfinished,) = summarise(tmp_path).rows[0].unfinished
    assert (unfinished.left_out or "").endswith("is of pair-small/base, seed 1")


def test_a_seed_that_the_plan_lists_twice_is_refused(tmp_path: Path) -> None:
    claim_plan(tmp_path, small_plan(seeds=[1, 1]))
    with pytest.raises(InputError, match=r"lists a seed of row 'base' twice \(1, 1\)"):
        summarise(tmp_path)
