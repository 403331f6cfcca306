"""A table, a search and Table 1 as a person reads them in Python."""

from __future__ import annotations

import shutil
from dataclasses import replace
from pathlib import Path

import pytest

from ablations.folder import LayersFolder, SearchFolder, TableFolder, open_folder
from ablations.report.numbers import compute_numbers
from ablations.tables.plan_file import claim_plan
from ablations.tables.table import Cell
from experiments.records.checksums import record_checksums
from experiments.records.ownership import claim
from experiments.records.progress import Progress, RunState
from experiments.records.result import load_result, save_result
from experiments.records.run import Run, locate, read_run
from tests.ablations.samples import finish, leave_curve, small_plan
from tests.ablations.search.samples import bowl, leave, small_search, work_on
from tests.ablations.status.samples import begin
from transformer.errors import InputError
from transformer.files import write_json

RESULTS = Path(__file__).parents[2] / "experiments" / "results"
FIRST, SECOND = Cell("base", 1), Cell("narrow", 1)


@pytest.fixture
def table(tmp_path: Path) -> Path:
    """Two finished runs, one in training and one that has not begun."""
    plan = claim_plan(tmp_path / "table", small_plan(seeds=(1, 2)))
    for cell, bleu in ((FIRST, 20.0), (SECOND, 30.0)):
        finish(tmp_path / "table", cell, 5.0, bleu)
        directory = cell.directory(tmp_path / "table")
        claim(directory, plan.experiment(cell))
        leave_curve(directory, {200: 9.0, 400: 8.0})
        found = load_result(directory)
        assert found is not None
        save_result(directory, record_checksums(directory, found))
    progress = Progress(stage=RunState.TRAIN, step=3, max_steps=9, updated_at=2**33)
    begin(tmp_path / "table", "base/seed-2", progress)
    return tmp_path / "table"


def test_each_run_is_read_with_its_row_seed_and_result(table: Path) -> None:
    folder = open_folder(table)
    assert isinstance(folder, TableFolder) and folder.title == "pair at scale tiny"
    found = [(run.row, run.seed, run.result and run.result.bleu) for run in folder.runs()]
    assert found == [("base", 1, 20.0), ("base", 2, None), ("narrow", 1, 30.0), ("narrow", 2, None)]
    first, training, *_, waiting = folder.runs()
    assert first.state == "done" and first.curve == {200: 9.0, 400: 8.0} and not first.losses
    assert first.experiment == folder.plan.experiment(FIRST)
    assert training.state == "running" and training.report is not None
    assert waiting.state == "waiting" and waiting.experiment is None and waiting.curve == {}
    assert folder.left == ["base/seed-2", "narrow/seed-2"]


def test_a_run_whose_files_changed_has_no_result(table: Path) -> None:
    path = FIRST.directory(table) / "metrics.csv"
    assert {problem for _, problem in open_folder(table).verify()} == {""}
    path.write_text("")
    first, *_ = open_folder(table).runs()
    assert first.result is None and f"{path} changed since the run finished" in first.problem
    told = [(file, problem) for file, problem in open_folder(table).verify() if problem]
    assert told == [(path, "changed since the run finished")]


def test_records_have_a_value_for_each_column(table: Path) -> None:
    folder = open_folder(table)
    records = folder.records()
    assert len({tuple(record) for record in records}) == 1
    found = [(x["row"], x["seed"], x["state"], x["d_ff"], x["bleu"]) for x in records]
    assert found == [
        ("base", 1, "done", 256, 20.0),
        ("base", 2, "running", 256, None),
        ("narrow", 1, "done", 128, 30.0),
        ("narrow", 2, "waiting", 128, None),
    ]
    curves = folder.curves()
    assert len({tuple(record) for record in curves}) == 1
    assert [(x["row"], x["step"], x["valid_perplexity"], x["loss"]) for x in curves] == [
        ("base", 200, 9.0, None),
        ("base", 400, 8.0, None),
        ("narrow", 200, 9.0, None),
        ("narrow", 400, 8.0, None),
    ]


def test_numbers_are_those_of_the_report() -> None:
    folder = open_folder(RESULTS / "table3-small")
    assert isinstance(folder, TableFolder)
    numbers = {(x["row"], x["measure"]): x for x in compute_numbers(folder).records()}
    wide = numbers["C-d1024", "perplexity"]
    report = (RESULTS / "table3-small" / "report.md").read_text(encoding="utf-8")
    (line,) = (x for x in report.splitlines() if x.startswith("| C-d1024 ") and " better " in x)
    low, high, least, most = (wide[x] for x in ("low", "high", "difference_low", "difference_high"))
    assert f" {low:.3f} to {high:.3f} |" in line and wide["verdict"] == "better"
    signed = f"{least:+.3f} to {most:+.3f}".replace("-", "\N{MINUS SIGN}")
    assert f" {signed} |" in line
    assert numbers["base", "bleu"]["difference"] is None


def test_a_search_has_trials_and_their_parameters(tmp_path: Path) -> None:
    search = small_search(tmp_path, trials=3)
    work_on(tmp_path, bowl, count=1)
    values = {"learning_rate_factor": 0.9, "warmup_steps": 103}
    leave(search, tmp_path / "trial-0001", values, until=668)
    write_json(tmp_path / "trial-0001" / "pruned.json", {"step": 668, "perplexity": 9.5})
    folder = open_folder(tmp_path)
    assert isinstance(folder, SearchFolder) and folder.confirmation is None
    assert [trial.state for trial in folder.trials()] == ["done", "pruned", "waiting"]
    done, pruned, waiting = folder.records()
    assert (pruned["trial"], pruned["perplexity"], pruned["steps"]) == ("trial-0001", 9.5, 668)
    assert pruned["learning_rate_factor"] == 0.9 and waiting["learning_rate_factor"] is None
    assert done["seed"] == 1
    assert folder.left == ["trial-0002"]
    assert {x["trial"] for x in folder.curves()} == {"trial-0000", "trial-0001"}


def test_table_1_has_a_record_for_each_layer_and_size(tmp_path: Path) -> None:
    folder = open_folder(RESULTS / "table1")
    assert isinstance(folder, LayersFolder) and folder.runs() == []
    assert folder.records()[0]["layer"] == "self-attention"
    found = LayersFolder(shutil.copytree(RESULTS / "table1", tmp_path / "table1"))
    found.plan.points.pop()
    assert folder.left == [] and found.left == ["d=1024, n=4096"]
    assert found.collect(tmp_path / "copy") == []
    assert len(LayersFolder(tmp_path / "copy").records()) < len(folder.records())


def test_what_is_no_folder_of_ours_is_refused(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="is not the directory of a table"):
        open_folder(tmp_path)


def test_a_run_that_is_renamed_while_it_is_read_is_read_again(
    table: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    stem = table / "base" / "seed-2"
    names = iter(["seed-2.attempt-2", "seed-2.attempt-3"])

    def renamed(path: Path) -> Path:
        found = locate(path)
        if (name := next(names, None)) is not None:
            found.rename(found.with_name(name))  # by another driver, just after it was found
        return found

    monkeypatch.setattr("experiments.records.run.locate", renamed)
    run = read_run(stem, "base/seed-2")
    assert run.directory.name == "seed-2.attempt-3" and run.progress is not None


def test_big_files_are_read_of_where_the_run_is_by_then(table: Path) -> None:
    run = open_folder(table).runs()[1]
    leave_curve(run.directory, {200: 7.0})
    run.directory.rename(table / "base" / "seed-2")
    assert not run.is_published and run.curve == {200: 7.0}


def test_a_run_is_plain_values(table: Path) -> None:
    one, again = (read_run(FIRST.directory(table), str(FIRST)) for _ in range(2))
    assert one == again and isinstance(one, Run)
    assert replace(one, result=None) != again
