"""The whole command, with stand-ins in place of trainings."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from ablations.folder import open_folder
from ablations.proposals import desk
from ablations.proposals.ledger import Ledger, Tried
from ablations.runs.options import Options
from ablations.tables.decoding import TABLE as DECODING
from ablations.tables.find import Selection
from ablations.tables.plan_file import load_plan, settle_plan
from experiments.records.ownership import identity
from experiments.records.progress import RunState
from tests.ablations.samples import Call, prepare_stand_ins, started
from tests.ablations.test_run_again import edit
from transformer.variant import FILES_VARIABLE

TRY = "try idea.py --scale quick --directory out --json"
IDEA = """
from transformer import Transformer


class Idea(Transformer):
    slope = 1
"""
# The perplexities of the committed base are 1.096 to 1.100.
GAIN, SAME, LOSS = (1.08, 1.081, 1.079, 1.08), (1.097, 1.099, 1.096, 1.098), (1.11, 1.112) * 2


def seeds_of(row: str, perplexities: tuple[float, ...], first: int = 1) -> dict[str, float]:
    return {f"{row}/seed-{first + index}": x for index, x in enumerate(perplexities)}


def say(
    out: Path, perplexities: Mapping[str, float], behaviour: Mapping[str, str] | None = None
) -> None:
    prepare_stand_ins(out, behaviour or {}, perplexities=perplexities)


@pytest.fixture
def idea(out: Path) -> Path:
    file = out.with_name("idea.py")
    file.write_text(IDEA)
    return file


@pytest.fixture
def ask(capsys: pytest.CaptureFixture[str], call: Call, idea: Path) -> Any:
    """The exit code and the object that a command prints."""

    def ask(arguments: str = TRY) -> tuple[int, dict[str, Any]]:
        from ablations.cli import PROGRAM

        capsys.readouterr()
        code = PROGRAM.run(arguments.split())
        captured = capsys.readouterr()
        assert captured.out.count("\n") == 1, (captured.out, captured.err[-2000:])
        return code, json.loads(captured.out)

    return ask


def test_a_gain_is_better_and_is_not_tried_twice(
    out: Path, idea: Path, ask: Any, call: Call
) -> None:
    say(out, seeds_of("Idea", GAIN))
    code, found = ask()
    assert code == 0 and found["verdict"] == "better"
    assert sorted(started(out)) == [f"Idea/seed-{seed}" for seed in (1, 2, 3, 4)]
    assert found["name"] == "Idea" and found["number"] == 1 and found["look"] == 1
    assert found["level"] == 0.025 > found["p"] > 0 and found["seeds"] == [1, 2, 3, 4]
    assert found["interval"][0] < found["difference"] < found["interval"][1] < 0
    assert found["perplexities"]["1"] == pytest.approx(1.08)
    assert len(found["differences"]) == 4 and max(found["differences"].values()) < 0
    assert found["classes"][0].startswith("Idea@") and not found["repeated"]
    assert 0 < found["smallest_gain"] < found["smallest_gain_after_20"] < 0.02

    idea.write_text(f"# A comment changes no class.\n{IDEA}")
    code, again = ask()
    assert code == 0 and again.pop("repeated") and not found.pop("repeated")
    assert again == found and len(started(out)) == 4
    code, shown = call(TRY.replace(" --json", ""))
    assert code == 0 and "proposal 1, Idea: better, tried before" in shown
    assert len(Ledger(out).lines) == 1


@pytest.mark.slow
def test_an_edited_class_is_another_proposal_and_the_first_one_stays(
    out: Path, idea: Path, ask: Any, call: Call
) -> None:
    say(out, seeds_of("Idea", GAIN) | seeds_of("Idea-2", SAME))
    assert ask()[1]["verdict"] == "better"
    edit(idea, "slope = 1", "slope = 2")
    code, second = ask()
    assert code == 0 and second["verdict"] == "no difference"
    assert (second["number"], second["name"], second["look"]) == (2, "Idea-2", 2)
    assert second["level"] == pytest.approx(0.05 / 6)
    edit(idea, "slope = 2", "slope = 1")
    assert ask()[1]["name"] == "Idea"
    runs = open_folder(out).runs()
    assert [run.state for run in runs] == [RunState.DONE] * 18
    code, shown = call("status out --json")
    assert code == 0 and json.loads(shown)["warnings"] == []
    assert call("report out")[0] == 0
    names = {str(load_plan(out).configs[row].model.model) for row in ("Idea", "Idea-2")}
    assert {name.partition("@")[0] for name in names} == {"Idea_1:Idea", "Idea_2:Idea"}
    assert "slope = 2" in (out / "classes/2/Idea_2.py").read_text()


@pytest.mark.slow
def test_a_loss_ends_after_two_seeds(out: Path, ask: Any) -> None:
    say(out, seeds_of("Idea", LOSS))
    code, found = ask()
    assert code == 0 and found["verdict"] == "worse"
    assert sorted(started(out)) == ["Idea/seed-1", "Idea/seed-2"]
    assert {run.state for run in open_folder(out).runs()} == {RunState.DONE}  # no seed waits
    assert len(found["scores"]) == len(found["perplexities"]) == 2


@pytest.mark.slow
def test_one_that_diverges_is_worse(out: Path, ask: Any) -> None:
    say(out, seeds_of("Idea", GAIN), {"Idea/seed-2": "diverge"})
    code, found = ask()
    assert code == 0 and found["verdict"] == "worse" and found["p"] is None
    assert found["reason"] == "training diverged at step 7" and found["perplexities"]["2"] is None
    say(out, seeds_of("Idea", GAIN))
    assert ask()[1]["verdict"] == "worse"


@pytest.mark.slow
def test_a_seed_that_is_lost_is_left_out_and_one_that_all_are_has_no_verdict(
    out: Path, idea: Path, ask: Any
) -> None:
    say(out, seeds_of("Idea", GAIN), {"Idea/seed-1": "crash"})
    code, found = ask()
    assert code == 0 and found["verdict"] == "better" and len(found["scores"]) == 3
    assert "it broke" in found["reason"]
    edit(idea, "slope = 1", "slope = 2")
    crashes = {f"Idea-2/seed-{seed}": "refuse" for seed in (1, 2)}
    say(out, seeds_of("Idea-2", GAIN), crashes)
    code, found = ask()
    assert code == 1 and found["verdict"] == "no verdict" and found["look"] is None
    assert "toy is missing" in found["reason"] and "Idea-2/seed-3" not in started(out)
    say(out, seeds_of("Idea-2", SAME))  # the cause is fixed
    code, found = ask()
    assert code == 0 and found["verdict"] == "no difference" and found["look"] == 2
    assert [type(line) for line in Ledger(out).lines] == [Tried] * 3


@pytest.mark.slow
def test_there_is_no_verdict_in_time_and_the_same_command_continues(out: Path, ask: Any) -> None:
    say(out, seeds_of("Idea", GAIN), {"Idea/seed-1": "hang"})
    code, found = ask(f"{TRY} --minutes 0.03")
    assert code == 1 and found["verdict"] == "no verdict" and found["look"] is None
    assert "the same command continues" in found["reason"]
    say(out, seeds_of("Idea", GAIN))
    code, found = ask()
    assert code == 0 and found["verdict"] == "better" and not found["repeated"]
    assert [line.verdict for line in Ledger(out).lines if isinstance(line, Tried)] == [
        "no verdict",
        "better",
    ]


@pytest.mark.slow
def test_a_winner_becomes_the_base_on_fresh_seeds(
    out: Path, idea: Path, ask: Any, call: Call
) -> None:
    fresh = tuple(1.08 + 0.0005 * (seed % 3) for seed in range(10))
    perplexities = (
        seeds_of("Idea", GAIN)
        | seeds_of("Idea", fresh, 11)
        | seeds_of("Idea-2", GAIN)
        | seeds_of("warm", GAIN, 11)
    )
    say(out, perplexities, {"Idea/seed-12": "crash"})
    assert ask()[1]["verdict"] == "better"
    edit(idea, "slope = 1", "slope = 2")
    assert ask()[1]["verdict"] == "better"
    edit(idea, "slope = 2", "slope = 1")
    adopt = "try Idea --adopt --scale quick --directory out"
    code, shown = call(f"{adopt} --json")
    assert code == 2 and "did not finish all seeds from 11 to 20" in shown
    assert len(Ledger(out).lines) == 2
    say(out, perplexities)
    code, found = ask(f"{adopt} --json")
    assert code == 0 and found["adopted"] == 1 and found["seeds"] == [*range(11, 21)]
    assert found["difference"] < 0
    code, shown = call(adopt.replace("Idea", "1"))
    assert code == 2 and "Idea is already the base" in shown
    code, shown = call(adopt.replace("Idea", "2"))
    assert code == 2 and "was compared with base, but the base is now Idea" in shown
    assert load_plan(out).row("Idea").seeds == (*range(1, 5), *range(11, 21))
    again = ask()[1]
    assert again["repeated"] and (again["base"], again["current_base"]) == ("base", "Idea")
    assert (
        "Idea has become the base since then"
        in call("try idea.py --scale quick --directory out")[1]
    )

    idea.write_text(
        "from ablations.tables import BASE, Table, row\n"
        'TABLE = Table(name="t", title="", base=BASE,\n'
        '    rows=(row("base"), row("warm", clip_norm=0.5)))\n'
    )
    # In a process that has not imported the base's class yet.
    command = [sys.executable, "-m", "tests.ablations.with_stand_ins", *TRY.split()]
    env = {name: value for name, value in os.environ.items() if name != FILES_VARIABLE}
    ended = subprocess.run(command, check=False, capture_output=True, text=True, env=env)
    code, found = ended.returncode, json.loads(ended.stdout)
    assert code == 0 and found["verdict"] == "no difference" and found["look"] == 3
    assert found["base"] == "Idea" and found["seeds"] == [11, 12, 13, 14]
    assert found["settings"] == {"clip_norm": 0.5}
    config = load_plan(out).configs["warm"]
    assert str(config.model.model).startswith("Idea_1:Idea") and config.training.clip_norm == 0.5
    code, shown = call(adopt.replace("Idea", "warm"))
    assert code == 2 and "the verdict on warm is no difference" in shown
    (out / "classes/1/Idea_1.py").rename(out / "kept.py")
    code, shown = call(TRY)
    assert code == 2 and "out/classes/1/Idea_1.py is missing: restore it" in shown


@pytest.mark.slow
def test_a_winner_that_is_worse_on_fresh_seeds_does_not_become_the_base(
    out: Path, ask: Any, call: Call
) -> None:
    say(out, seeds_of("Idea", GAIN) | seeds_of("Idea", (1.12,) * 10, 11))
    assert ask()[1]["verdict"] == "better"
    for _ in range(2):
        code, shown = call("try Idea --adopt --scale quick --directory out")
        assert code == 2 and "on its new seeds Idea is 2.0% worse than base, so it" in shown
    assert len(Ledger(out).lines) == 1 and len(started(out)) == 14


@pytest.mark.slow
def test_a_ledger_without_its_plan_is_refused(out: Path, ask: Any, call: Call) -> None:
    say(out, seeds_of("Idea", SAME))
    assert ask()[0] == 0
    (out / "table.json").unlink()
    code, shown = call(TRY)
    assert code == 2 and "out/table.json lacks Idea, which out/ledger.jsonl has: restore" in shown


@pytest.mark.slow
def test_a_lost_run_of_the_base_is_taken_again_and_a_lost_base_is_trained(
    out: Path, ask: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(desk.Desk, "_seconds", lambda *_: 125.0)
    say(out, seeds_of("Idea", SAME))
    assert ask()[0] == 0
    shutil.rmtree(out / "base/seed-3")
    assert ask()[1]["repeated"] and (out / "base/seed-3").exists()
    assert len(started(out)) == 4
    shutil.rmtree(out / "base")
    say(out, seeds_of("base", tuple(1.097 + 0.001 * (seed % 4) for seed in range(10))))
    assert ask()[1]["repeated"] and len(started(out)) == 14


@pytest.mark.slow
def test_classes_that_import_different_files_of_one_name_are_not_put_together(
    out: Path, idea: Path, ask: Any, call: Call
) -> None:
    say(out, seeds_of("Idea", GAIN) | seeds_of("Idea", (1.08,) * 10, 11))
    helper = idea.with_name("part_of_base.py")
    helper.write_text("SLOPE = 3\n")
    idea.write_text(f"from part_of_base import SLOPE\n{IDEA}    steep = SLOPE\n")
    assert ask(TRY.replace("idea.py", "idea.py:Idea"))[1]["verdict"] == "better"
    assert ask("try Idea --adopt --scale quick --directory out --json")[0] == 0
    helper.write_text("SLOPE = 5\n")
    idea.write_text(
        "from part_of_base import SLOPE\nfrom transformer import TransformerModule\n\n\n"
        "class Method(TransformerModule):\n    steep = SLOPE\n"
    )
    code, shown = call(TRY.replace("idea.py", "idea.py:Method"))
    assert code == 2 and "part_of_base.py of Method differs from the file of that name" in shown
    assert not (out / "classes/2").exists()


def test_a_class_that_reads_another_file_is_refused_before_it_is_trained(
    out: Path, idea: Path, call: Call
) -> None:
    say(out, {})
    idea.with_name("words.txt").write_text("a word")
    idea.write_text(
        "from pathlib import Path\n"
        f"{IDEA}    words = (Path(__file__).parent / 'words.txt').read_text()\n"
    )
    code, shown = call(TRY)
    assert code == 2 and "words.txt" in shown and "only Python files are copied" in shown
    assert not (out / "classes/1").exists() and started(out) == []
    assert [row.name for row in load_plan(out).rows] == ["base"]


@pytest.mark.slow
def test_without_committed_results_the_base_is_trained_first(
    out: Path, ask: Any, call: Call, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(desk, "RESULTS", Path("nowhere"))
    monkeypatch.setattr(desk.Desk, "_seconds", lambda *_: 125.0)
    base = tuple(1.097 + 0.001 * (seed % 4) for seed in range(10))
    say(out, seeds_of("base", base) | seeds_of("Idea", SAME))
    code, shown = call(TRY.replace(" --json", ""))
    assert code == 0 and "training the base first: 10 runs, about 2 min 05 s" in shown
    assert shown.count("there are no committed runs of the base here: a clone") == 1
    assert "proposal 1, Idea: no difference" in shown and "10 of base" in shown
    assert {*started(out)[:10]} == {f"base/seed-{seed}" for seed in range(1, 11)}


@pytest.mark.slow
def test_a_module_of_the_project_and_a_helper_beside_the_file(
    out: Path, idea: Path, ask: Any
) -> None:
    say(out, seeds_of("GeluTransformer", SAME) | seeds_of("Idea", SAME))
    name = "transformer.variants.layers:GeluTransformer"
    code, found = ask(TRY.replace("idea.py", name))
    assert code == 0 and found["name"] == "GeluTransformer" and not (out / "classes").exists()
    idea.with_name("part_of_proposal.py").write_text("SLOPE = 3\nOTHER = 5\n")
    idea.write_text(f"from part_of_proposal import OTHER, SLOPE\n{IDEA}    steep = SLOPE\n")
    code, found = ask(TRY.replace("idea.py", "idea.py:Idea"))
    assert code == 0 and (out / "classes/2/part_of_proposal.py").exists()


@pytest.mark.slow
def test_a_class_of_the_project_that_was_edited_since_is_another_proposal(
    out: Path, ask: Any
) -> None:
    """The plan follows its source, so that the ledger decides."""
    say(out, seeds_of("GeluTransformer", SAME) | seeds_of("GeluTransformer-2", SAME))
    command = TRY.replace("idea.py", "transformer.variants.layers:GeluTransformer")
    assert ask(command)[0] == 0
    line = Ledger(out).lines[0]
    assert isinstance(line, Tried)
    Ledger(out).append(replace(line, classes=("GeluTransformer@00000000",)))
    code, found = ask(command)
    assert code == 0 and found["name"] == "GeluTransformer-2" and not found["repeated"]
    assert ask(command)[1]["name"] == "GeluTransformer-2"


@pytest.mark.slow
def test_a_method_is_tried_as_a_method(out: Path, idea: Path, ask: Any) -> None:
    edit(idea, "import Transformer", "import TransformerModule")
    edit(idea, "(Transformer)", "(TransformerModule)")
    say(out, seeds_of("Idea", SAME))
    assert ask()[0] == 0
    config = load_plan(out).configs["Idea"]
    assert config.model.model is None and str(config.training.method).startswith("Idea_1:Idea@")


@pytest.mark.parametrize(
    ("content", "what", "said"),
    [
        (IDEA, "nothing.py", "there is no class or table file nothing.py"),
        (IDEA, "idea.py:Ida", "there is no Ida in"),
        (IDEA, "idea", "'idea' names no class: write FILE.py:Class or module:Class"),
        (IDEA, "idea.py:", "'idea.py:' names no class: write FILE.py:Class or module:Class"),
        (IDEA, "nowhere:Idea", "nowhere is not installed: give its file, as in FILE.py:Idea"),
        (IDEA, "transformer:Transformer", "is the paper's own, which changes nothing"),
        (IDEA, "transformer:TransformerModule", "is the paper's own, which changes nothing"),
        ("x = 1", "idea.py", "idea.py has no class that is a model or a method, and no TABLE"),
        (
            IDEA + "\n\nclass Other(Transformer):\n    pass\n",
            "idea.py",
            "idea.py has 2 classes (Idea, Other) that are models or methods",
        ),
        ("class Idea:\n    pass\n", "idea.py:Idea", "is neither a model (a subclass of"),
        (
            IDEA + "\n    def __init__(self, config):\n        raise ValueError('no')\n",
            "idea.py",
            "cannot be built: ValueError: no",
        ),
    ],
)
def test_what_is_no_proposal_is_refused_before_a_directory_is_made(
    content: str, what: str, said: str, idea: Path, call: Call
) -> None:
    idea.write_text(content)
    code, shown = call(f"try {what} --scale quick --directory new --json")
    assert code == 2 and said in shown and shown.count("\n") == 1
    assert not Path("new").exists()


TABLE = """
from ablations.tables import BASE, Table, Tune, row
from transformer.config import override

TABLE = Table(name="t", title="", base=BASE, rows=(row("base"), row("one", clip_norm=0.5)))
"""


@pytest.mark.parametrize(
    ("old", "new", "said"),
    [
        ('row("one", clip_norm=0.5)', "", "idea.py has 0 rows besides its base"),
        ("0.5)", '0.5), row("two", clip_norm=0.7)', "idea.py has 2 rows besides its base"),
        ("base=BASE", "base=override(BASE, dropout=0.3)", "its base is not Table 3's"),
        ("clip_norm=0.5", "vocab_size=400", "one changes the text or its vocabulary"),
        ("clip_norm=0.5", "beam_size=1", "one changes nothing in the training"),
        ("clip_norm=0.5", "checkpoint_every_steps=9", "one changes nothing in the training"),
        ("clip_norm=0.5", "validate_every_steps=9", "one changes nothing in the training"),
        ("clip_norm=0.5", "threads=2", "one sets threads, but proposals have the base's"),
        ("clip_norm=0.5", 'clip_norm=float("nan")', "row 'one'"),
        ("base=BASE", "base=BASE, tune=Tune()", "idea.py tunes its rows, but try trains one"),
        ("clip_norm=0.5", "clip_norm=1.0", "one changes nothing in the training"),
    ],
)
def test_tables_that_hold_no_proposal_are_refused(
    old: str, new: str, said: str, idea: Path, call: Call
) -> None:
    idea.write_text(TABLE)
    edit(idea, old, new)
    code, shown = call("try idea.py --scale quick --directory new")
    assert code == 2 and said in shown, shown
    assert not Path("new").exists()


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ("try idea.py --scale tinny", "unknown scale 'tinny'"),
        ("try idea.py --minutes 0", "--minutes"),
        ("try idea.py --scale quick --directory other", "other has other runs (search.json)"),
        ("try 1 --adopt --scale quick --directory new", "new has no proposals: try one first"),
        ("try 1 --adopt --minutes 3", "--minutes is for trying a proposal"),
    ],
)
def test_wrong_arguments_are_refused(arguments: str, said: str, idea: Path, call: Call) -> None:
    Path("other").mkdir()
    Path("other/search.json").write_text("{}")
    code, shown = call(arguments)
    assert code == 2 and said in shown, shown


@pytest.mark.slow
def test_a_proposal_of_that_number_must_be_there(out: Path, ask: Any, call: Call) -> None:
    say(out, seeds_of("Idea", SAME))
    ask()
    code, shown = call("try 7 --adopt --scale quick --directory out")
    assert code == 2 and "there is no proposal '7' in out; it has: 1 Idea" in shown


def test_the_base_at_small_is_trained_as_the_rows_of_decoding_are(tmp_path: Path) -> None:
    plan, _ = Selection(scale="small", rows="average-1").plan(DECODING)
    settled = settle_plan(tmp_path, plan)
    ours = desk.Desk(tmp_path, "small", Options()).plan.configs["base"]
    assert identity(settled.configs["average-1"]) == identity(ours)


@pytest.mark.slow
@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM])
def test_a_killed_command_continues(number: signal.Signals, out: Path, ask: Any) -> None:
    say(out, seeds_of("Idea", GAIN), {"Idea/seed-3": "hang"})
    command = [sys.executable, "-m", "tests.ablations.with_stand_ins", *TRY.split()]
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    deadline = time.monotonic() + 60
    while "Idea/seed-3" not in started(out) and time.monotonic() < deadline:
        time.sleep(0.05)
    process.send_signal(number)
    code = process.wait(timeout=60)
    assert code == (128 + number if number == signal.SIGTERM else -number)
    assert Ledger(out).lines == ()
    say(out, seeds_of("Idea", GAIN))
    code, found = ask()
    assert code == 0 and found["verdict"] == "better" and found["number"] == 1
    assert started(out).count("Idea/seed-1") == 1
