"""Rows that differ in decoding or averaging alone are trained once for each seed."""

from __future__ import annotations

import os
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from ablations.costs.estimate import plan_table
from ablations.costs.speed import SCORING_SECONDS
from ablations.folder import TableFolder
from ablations.runs.options import Places
from ablations.runs.shared import has_training, take_training
from ablations.status.status import _only_scored
from ablations.tables.find import Selection
from ablations.tables.plan_file import load_plan
from experiments.records.experiment import load_experiment
from experiments.records.outputs import step_checkpoints
from experiments.records.run import read_run
from experiments.records.source import record_source
from tests.ablations.samples import Call, prepare_stand_ins, started
from tests.ablations.stand_in import STARTS_FILE
from transformer.variant import classes_of

RUN = "run mine.py --scale tiny --workers 2 --directory out --log none"
MINE = """
from dataclasses import replace
from ablations.tables import row
from tests.ablations.samples import SMALL_TABLE, TINY

ROWS = (
    row("base"),
    row("beam9", beam_size=9),
    row("free", d_ff=512),
    row("average3", average_checkpoints=3),
)
SCALE = replace(TINY, settings=TINY.settings | {"checkpoint_every_steps": 300})
TABLE = replace(SMALL_TABLE, name="mine", rows=ROWS, scales=(SCALE,))
"""


@pytest.fixture
def mine(out: Path) -> Path:
    file = out.with_name("mine.py")
    file.write_text(MINE)
    return file


def starts(directory: Path) -> list[str]:
    """The steps from which the attempts at a run began."""
    return (directory / STARTS_FILE).read_text().split()


def test_rows_of_one_training_are_trained_once_a_seed(mine: Path, out: Path, call: Call) -> None:
    code, shown = call(f"{RUN} --seeds 1,2")
    assert code == 0, shown
    for seed in (1, 2):
        assert f"scored with the training of base/seed-{seed}" in shown
        assert starts(out / f"base/seed-{seed}") == starts(out / f"free/seed-{seed}") == ["0"]
        for row in ("beam9", "average3"):
            assert starts(out / f"{row}/seed-{seed}") == ["1500"]
            ours, theirs = (read_run(out / f"{x}/seed-{seed}").result for x in (row, "base"))
            assert ours and theirs and ours.perplexity == theirs.perplexity
            shared = read_run(out / f"{row}/seed-{seed}")
            assert shared.attempt and shared.attempt.trained_in == f"base/seed-{seed}"
            assert shared.seconds is not None and shared.seconds < ours.train_seconds
    assert len(started(out)) == 8


@pytest.mark.slow
def test_a_row_that_is_added_is_scored_with_a_finished_training(
    mine: Path, out: Path, call: Call
) -> None:
    assert call(f"{RUN} --rows base")[0] == 0
    assert call(RUN)[0] == 0
    assert starts(out / "average3/seed-1") == ["1500"]
    assert (out / "beam9/seed-1/metrics.csv").exists() == (out / "base/seed-1/metrics.csv").exists()


@pytest.mark.slow
def test_without_its_checkpoints_it_is_trained_again_once(
    mine: Path, out: Path, call: Call
) -> None:
    assert call(f"{RUN} --rows base")[0] == 0
    for path in (out / "base/seed-1/checkpoints").glob("*.ckpt"):
        path.unlink()
    plan = "plan mine.py --scale tiny --directory out --rows beam9,average3 --device H100"
    said = "the training of beam9 is repeated, as no finished run that shares it has the checkpo"
    assert said in call(plan)[1]
    assert call(f"{RUN} --rows beam9,average3")[0] == 0
    assert sorted(starts(out / f"{row}/seed-1")[0] for row in ("beam9", "average3")) == [
        "0",
        "1500",
    ]


@pytest.mark.slow
def test_a_failed_training_is_not_tried_for_each_of_its_rows(
    mine: Path, out: Path, call: Call
) -> None:
    prepare_stand_ins(out, {"base/seed-1": "crash"})
    code, shown = call(f"{RUN} --retries 0")
    assert (
        code == 1 and "beam9/seed-1: left for now, as its training failed in base/seed-1" in shown
    )
    assert sorted(started(out)) == ["base/seed-1", "free/seed-1"]
    prepare_stand_ins(out, {})
    assert call(f"{RUN} --retry-failed")[0] == 0
    assert starts(out / "beam9/seed-1") == ["1500"]


@pytest.mark.slow
def test_a_training_that_diverged_did_so_in_each_of_its_rows(
    mine: Path, out: Path, call: Call
) -> None:
    prepare_stand_ins(out, {"base/seed-1": "diverge"})
    code, shown = call(RUN)
    assert code == 0, shown
    assert starts(out / "free/seed-1") == ["0"]
    for row in ("beam9", "average3"):
        run = read_run(out / f"{row}/seed-1")
        assert not (run.directory / STARTS_FILE).exists() and run.result is not None
        assert (run.diverged_at, run.result.averaged_checkpoints) == (7, 3 if row[0] == "a" else 1)
        assert run.attempt is not None and run.attempt.trained_in == "base/seed-1"
        assert f"{row}/seed-1: diverged at step 7" in shown
    assert "diverged: 1 of 1" in call("report out")[1]


@pytest.mark.slow
def test_shards_do_not_divide_a_training(mine: Path, out: Path, call: Call) -> None:
    assert call(f"{RUN} --shard 1/2")[0] == 0
    assert sorted(started(out)) == ["average3/seed-1", "base/seed-1", "beam9/seed-1"]
    assert call(f"{RUN} --shard 2/2")[0] == 0
    assert len(started(out)) == 4


@pytest.mark.slow
def test_what_a_training_is_taken_from(mine: Path, out: Path, call: Call, tmp_path: Path) -> None:
    assert call(f"{RUN} --rows base,free")[0] == 0
    base, free, new = out / "base/seed-1", out / "free/seed-1", tmp_path / "new"
    new.mkdir()
    config = load_plan(out).experiment(load_plan(out).cells[0]).config
    assert has_training(base, config) and not has_training(free, config)
    assert take_training(new, config, [free]) is None
    newest = max((base / "checkpoints").glob("*.ckpt"))
    content = newest.read_bytes()
    newest.write_bytes(content[:-1])
    assert take_training(new, config, [base]) is None
    newest.write_bytes(content)
    assert take_training(new, config, [free, base]) == base
    copies = sorted((new / "checkpoints").iterdir())
    assert [path.stat().st_ino for path in copies] == [
        (base / "checkpoints" / path.name).stat().st_ino for path in copies
    ]


@pytest.mark.parametrize("links", [0, 1, 3])
def test_a_kill_leaves_all_checkpoints_of_a_training_or_none(
    mine: Path, out: Path, call: Call, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, links: int
) -> None:
    """Taken by a run that had begun to train, but has lost its own checkpoints."""
    assert call(f"{RUN} --rows base")[0] == 0
    base, new = out / "base/seed-1", tmp_path / "new"
    (base / "metrics.csv").write_text("step\n1500\n")
    (new / "checkpoints").mkdir(parents=True)
    (new / "checkpoints/step-00000300.ckpt.damaged").touch()
    (new / "metrics.csv").write_text("step\n299\n")
    config = load_plan(out).experiment(load_plan(out).cells[0]).config
    names = {path.name for path in (base / "checkpoints").glob("*.ckpt")}
    assert len(names) > 3
    link, linked = os.link, []

    def die(source: Path, target: Path) -> None:
        if len(linked) == links:
            raise KeyboardInterrupt
        linked.append(link(source, target))

    with monkeypatch.context() as patch:
        patch.setattr(os, "link", die)
        patch.setattr("transformer.files.remove", lambda path: None)  # nobody cleans up
        with pytest.raises(KeyboardInterrupt):
            take_training(new, config, [base])
    assert not step_checkpoints(new)
    assert take_training(new, config, []) is None
    assert {path.name for path in new.iterdir()} == {"checkpoints", "metrics.csv"}
    assert take_training(new, config, [base]) == base
    assert {path.name for path in (new / "checkpoints").iterdir()} == names
    assert (new / "metrics.csv").read_text() == (base / "metrics.csv").read_text()
    assert take_training(new, config, [base]) is None  # it has one


def test_without_hard_links_a_training_is_copied(
    mine: Path, out: Path, call: Call, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert call(f"{RUN} --rows base")[0] == 0

    def refuse(*_: object) -> None:
        raise OSError

    monkeypatch.setattr(os, "link", refuse)
    config = load_plan(out).experiment(load_plan(out).cells[0]).config
    (tmp_path / "new").mkdir()
    assert take_training(tmp_path / "new", config, [out / "base/seed-1"])
    assert has_training(out / "base/seed-1", config)
    assert len([*(tmp_path / "new/checkpoints").iterdir()]) == 5


@pytest.mark.slow
def test_plan_and_status_count_a_training_once(mine: Path, out: Path, call: Call) -> None:
    wanted = Selection(scale="tiny", seeds="1,2", directory=out)
    found = plan_table(str(mine), wanted, device="H100", devices=1, places=Places())
    base, beam, free, average = found.rows
    assert beam.flops == average.flops == beam.disk_bytes == 0 < free.flops
    assert beam.checkpoint_bytes == 0
    assert beam.seconds == average.seconds == SCORING_SECONDS
    assert base.disk_bytes == 3 * base.parameters * 4  # as average3 needs
    assert found.runs == found.runs_left == 8
    prepare_stand_ins(out, {"base/seed-1": "crash", "free/seed-1": "crash"})
    call(f"{RUN} --retries 0")
    runs = TableFolder(out).look()
    assert _only_scored(runs, TableFolder(out).trainings) == {"average3/seed-1"}
    prepare_stand_ins(out, {})
    call(f"{RUN} --retry-failed --rows base")
    found = plan_table(
        str(mine), replace(wanted, seeds="1"), device="H100", devices=1, places=Places()
    )
    assert found.runs_left == 3
    assert found.seconds_left == pytest.approx(found.rows[2].seconds + 2 * SCORING_SECONDS)


@pytest.mark.slow
def test_a_training_with_another_source_is_not_taken(
    mine: Path, out: Path, call: Call, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "path", [*sys.path, str(out.with_name("lib"))])
    out.with_name("lib").mkdir()
    helper = out.with_name("lib") / "helper_of_idea.py"
    helper.write_text("WIDTH = 1\n")
    own = "from transformer import Transformer\nimport helper_of_idea\n\n\n"
    own += "class Idea(Transformer):\n    width = helper_of_idea.WIDTH\n\n\n"
    rows = 'row("idea", model=Idea), row("idea9", model=Idea, beam_size=9)'
    mine.write_text(f"{own}{MINE.replace('ROWS = (', f'ROWS = ({rows},')}")
    code, shown = call(f"{RUN} --rows idea")
    assert code == 0, shown
    idea = out / "idea/seed-1"
    experiment = load_experiment(idea)
    record_source(idea, classes_of(experiment.config))
    assert has_training(idea, experiment.config)
    helper.write_text("WIDTH = 2\n")
    assert not has_training(idea, experiment.config)
    assert call(f"{RUN} --rows idea9")[0] == 0
    assert starts(out / "idea9/seed-1") == ["0"]
