"""A researcher's loop: change a row or its class, and run the table again in its directory."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest

from ablations.folder import TableFolder, open_folder
from ablations.runs.process import Job, Place
from ablations.runs.reuse import set_aside_stale
from ablations.tables.plan_file import load_plan
from experiments.records.experiment import load_experiment
from experiments.records.progress import RunState
from tests.ablations.samples import Call, prepare_stand_ins, start_stand_in, started, when

RUN = "run mine.py --scale tiny --workers 1 --directory out --log none"
MINE = """
from dataclasses import replace
from ablations.tables import row
from tests.ablations.samples import SMALL_TABLE
from transformer import Transformer


class Idea(Transformer):
    slope = 1


TABLE = replace(SMALL_TABLE, name="mine", rows=(row("base"), row("idea", model=Idea)))
"""
CHANGED = "row idea has changed since it was trained (source of Idea: "


@pytest.fixture
def mine(out: Path) -> Path:
    file = out.with_name("mine.py")
    file.write_text(MINE)
    return file


def edit(file: Path, old: str, new: str) -> None:
    text = file.read_text()
    assert old in text
    file.write_text(text.replace(old, new))


def test_an_idea_crashes_is_fixed_and_is_changed(mine: Path, out: Path, call: Call) -> None:
    prepare_stand_ins(out, {"idea/seed-1": "crash"})
    code, shown = call(f"{RUN} --retries 0")
    assert code == 1 and "1 given up" in shown
    prepare_stand_ins(out, {})
    edit(mine, "slope = 1", "slope = 2")
    code, shown = call(RUN)
    assert (
        code == 0 and "trained from the start, as its settings or its class have changed" in shown
    )
    assert started(out) == ["base/seed-1", "idea/seed-1", "idea/seed-1"]
    assert "it broke" in (out / "replaced/idea/seed-1.1/log.txt").read_text()

    edit(mine, "slope = 2", "slope = 3")
    for command in (RUN, RUN.replace("run", "plan", 1).replace("--log none", "--device H100")):
        code, shown = call(command)
        assert code == 0 and CHANGED in shown and "run … --again idea trains" in shown
    assert "idea, seed 1: stale (source of Idea" in (out / "report.md").read_text()
    assert "1 of 2 runs finished" in (out / "report.md").read_text()
    assert CHANGED in call("status out")[1]
    assert len(started(out)) == 3
    edit(mine, "slope = 3", "slope = 2")
    assert CHANGED not in call(RUN)[1]

    edit(mine, "slope = 2", "slope = 4")
    assert "1 stale run moved to out/replaced" in call(f"{RUN} --again idea")[1]
    assert "0 stale runs moved" in call(f"{RUN} --again idea")[1]
    assert started(out)[3:] == ["idea/seed-1"]
    assert (out / "replaced/idea/seed-1.2/result.json").exists()
    assert [run.state for run in open_folder(out).runs()] == [RunState.DONE] * 2
    assert "left out" not in (out / "report.md").read_text()


@pytest.mark.slow
def test_all_seeds_of_a_row_are_trained_again(mine: Path, out: Path, call: Call) -> None:
    assert call(f"{RUN} --seeds 1,2")[0] == 0
    edit(mine, "slope = 1", "slope = 2")
    assert call(f"{RUN} --seeds 1 --rows base --again idea")[0] == 0
    assert started(out)[4:] == ["idea/seed-1", "idea/seed-2"]


@pytest.mark.slow
def test_after_a_kill_the_wish_stays(mine: Path, out: Path, call: Call) -> None:
    """What was moved aside before the kill is trained by any command."""
    assert call(f"{RUN} --seeds 1,2")[0] == 0
    edit(mine, "slope = 1", "slope = 2")
    call(RUN)
    assert set_aside_stale(out, ["idea"]) == ["idea/seed-1", "idea/seed-2"]
    assert call(RUN)[0] == 0
    assert call(f"{RUN} --again idea")[0] == 0
    assert started(out)[4:] == ["idea/seed-1", "idea/seed-2"]


@pytest.mark.slow
def test_a_row_that_a_setting_changes_is_stale(mine: Path, out: Path, call: Call) -> None:
    edit(mine, "model=Idea", "d_ff=1024")
    assert call(RUN)[0] == 0
    edit(mine, "d_ff=1024", "d_ff=512")
    assert "(model.d_ff: 128 -> 64)" in call(RUN)[1]
    assert started(out) == ["base/seed-1", "idea/seed-1"]


@pytest.mark.slow
def test_rows_and_files_may_be_renamed(mine: Path, out: Path, call: Call) -> None:
    assert call(f"{RUN} --seeds 1,2")[0] == 0
    edit(mine, 'row("idea"', 'row("thought"')
    renamed = mine.rename(mine.with_name("yours.py"))
    code, shown = call(RUN.replace("mine.py", renamed.name))
    assert code == 0 and "2 runs taken from rows that have been renamed" in shown
    assert len(started(out)) == 4 and not (out / "idea").exists()
    assert "4 of 4 runs finished" in (out / "report.md").read_text()
    assert call("verify out")[0] == 0


@pytest.mark.slow
def test_a_row_may_be_removed_and_come_back(mine: Path, out: Path, call: Call) -> None:
    assert call(RUN)[0] == 0
    edit(mine, ', row("idea", model=Idea)', ",")
    assert call(RUN)[0] == 0
    assert "idea/seed-1: left out, as table.json" in (out / "report.md").read_text()
    mine.write_text(MINE)
    assert call(RUN)[0] == 0 and len(started(out)) == 2
    assert "2 of 2 runs finished" in (out / "report.md").read_text()


@pytest.mark.slow
def test_a_class_is_edited_while_its_table_trains(mine: Path, out: Path, call: Call) -> None:
    """Those that begin later have the new source, and the earlier ones are stale."""
    prepare_stand_ins(out, {"idea/seed-1": "slow"})
    begun = out / "idea/seed-1.attempt-1/starts.txt"
    thread = when(begun.exists, lambda: edit(mine, "slope = 1", "slope = 2"))
    edit(mine, 'row("base"), row("idea", model=Idea)', 'row("idea", model=Idea),')
    code, shown = call(f"{RUN} --seeds 1,2")
    thread.join()
    assert code == 0 and CHANGED in (out / "report.md").read_text(), shown
    first, second = (load_experiment(out / f"idea/seed-{n}").config.model.model for n in (1, 2))
    assert first != second == load_plan(out).configs["idea"].model.model
    states = [run.state for run in TableFolder(out).runs()]
    assert states == [RunState.STALE, RunState.DONE]


@pytest.mark.slow
def test_equal_runs_are_taken_whatever_their_table_is_called(
    mine: Path, out: Path, call: Call
) -> None:
    assert call(f"{RUN} --seeds 1,2")[0] == 0
    assert call("collect out --into kept")[0] == 0
    edit(mine, 'name="mine"', 'name="other"')
    edit(mine, 'row("base")', 'row("free", d_ff=512)')
    mine.rename(mine.with_name("other.py"))
    prepare_stand_ins(out.with_name("new"), {})
    for earlier in ("out", "kept"):
        shutil.rmtree(out.with_name("new"))
        prepare_stand_ins(out.with_name("new"), {})
        command = f"run other.py --scale tiny --workers 1 --directory new --from {earlier}"
        assert f"2 finished runs taken from {earlier}" in call(f"{command} --log none")[1]
        assert started(out.with_name("new")) == ["free/seed-1"]
        records = open_folder("new").records()
        assert [(x["row"], x["seed"], x["state"]) for x in records] == [
            ("free", 1, "done"),
            ("idea", 1, "done"),
            ("idea", 2, "done"),
        ]


@pytest.mark.slow
def test_a_collected_run_is_replaced_by_one_trained_again(
    mine: Path, out: Path, call: Call
) -> None:
    assert call(RUN)[0] == 0
    assert call("collect out --into kept")[0] == 0
    edit(mine, "slope = 1", "slope = 2")
    assert call(f"{RUN} --again idea")[0] == 0
    assert "1 runs added to kept" in call("collect out --into kept")[1]
    kept = TableFolder(Path("kept"))
    assert sorted(kept.collection.lines) == ["base/seed-1", "idea/seed-1", "replaced/idea/seed-1.1"]
    assert [run.state for run in kept.runs()] == [RunState.DONE] * 2
    assert "0 runs added to kept" in call("collect out --into kept")[1]
    edit(mine, "slope = 2", "slope = 3")
    prepare_stand_ins(Path("kept").absolute(), {})
    code, shown = call(f"{RUN.replace('out', 'kept')} --again idea")
    assert code == 0 and started(Path("kept")) == ["idea/seed-1"], shown
    assert "replaced/idea/seed-1.2" in TableFolder(Path("kept")).collection.lines
    assert call("verify kept")[0] == 0


@pytest.mark.slow
def test_results_of_other_settings_are_not_collected_into_others(
    mine: Path, out: Path, call: Call
) -> None:
    edit(mine, "model=Idea", "d_ff=1024")
    assert call(RUN)[0] == 0
    assert call("collect out --into kept")[0] == 0
    edit(mine, "d_ff=1024", "d_ff=512")
    assert call(f"{RUN} --rows base")[0] == 0
    with pytest.warns(UserWarning, match="left out: idea/seed-1 is stale"):
        code, shown = call("collect out --into kept")
    assert code == 2 and "kept/idea/seed-1 has other settings (model.d_ff: 128 -> 64)" in shown


@pytest.mark.slow
def test_a_report_leaves_rows_out(mine: Path, out: Path, call: Call) -> None:
    assert call(RUN)[0] == 0
    for option in ("--rows base", "--without idea"):
        code, _ = call(f"report out {option}")
        text = (out / "report.md").read_text()
        assert code == 0 and "1 of 1 runs finished" in text and "| idea" not in text
        assert "idea: left out of this report" in text
    for option, said in (
        ("--rows ida", "unknown row 'ida': did you mean 'idea'?"),
        ("--without base,idea", "no row is left: name fewer in --without"),
    ):
        code, shown = call(f"report out {option}")
        assert code == 2 and said in shown


@pytest.mark.slow
def test_a_method_of_ones_own_is_stale_once_it_changes(mine: Path, out: Path, call: Call) -> None:
    edit(mine, "import Transformer", "import TransformerModule")
    edit(mine, "Idea(Transformer)", "Idea(TransformerModule)")
    edit(mine, "model=Idea", "method=Idea")
    assert call(RUN)[0] == 0
    edit(mine, "slope = 1", "slope = 2")
    assert CHANGED in call(RUN)[1]
    assert call(f"{RUN} --again idea")[0] == 0
    assert started(out) == ["base/seed-1", "idea/seed-1", "idea/seed-1"]


def test_a_class_that_is_edited_before_its_run_imports_it_is_begun_again(
    mine: Path, out: Path, call: Call, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A process whose class is not the one that it was started for is blocked."""
    edit(mine, 'row("base"), row("idea", model=Idea)', 'row("idea", model=Idea),')
    prepare_stand_ins(out, {"idea/seed-1": "block"})

    def start(directory: Path, job: Job, place: Place) -> subprocess.Popen[bytes]:
        if started(out):
            prepare_stand_ins(out, {})
        else:
            edit(mine, "slope = 1", "slope = 2")
        return start_stand_in(directory, job, place)

    monkeypatch.setattr("ablations.runs.process.fork", start)
    code, shown = call(RUN)
    assert code == 0 and started(out) == ["idea/seed-1"] * 2, shown
    assert [run.state for run in TableFolder(out).runs()] == [RunState.DONE]
