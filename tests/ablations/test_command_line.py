"""The commands as processes: exit codes, messages, signals, and what they do not import."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Generator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from ablations.files import check_name
from ablations.runs.lock import WHOLE, Shard, lock_runs
from ablations.tables.find import Selection, load_table, parse_seeds
from ablations.tables.plan_file import claim_plan, load_plan
from ablations.tables.table import Cell
from experiments.records.collection import Collection
from tests.ablations.samples import (
    SMALL_TABLE,
    TINY,
    Call,
    hangs,
    prepare_stand_ins,
    small_plan,
    started,
    when,
)
from tests.ablations.search.samples import journal
from tests.ablations.stand_in import SETTINGS_FILE, STARTED_FILE
from transformer.config import override
from transformer.errors import InputError

ROOT = Path(__file__).parents[2]
RUN = "run pair.py --scale tiny --rows base,narrow --workers 1 --directory out"
BASE, NARROW = Cell("base", 1), Cell("narrow", 1)
SEEDS = "but takes whole numbers and ranges such as 1-5,7, of at most 1,000 seeds"
SHARDS = "but must be like 2/8, the second of eight"


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ("run tabel3 --scale quick", "unknown table 'tabel3': did you mean 'table3'?"),
        ("run table3 --scale quik", "unknown scale 'quik': did you mean 'quick'?"),
        ("run table3", "table3 needs --scale: list prints the scales"),
        ("QUICK --rows base,bigg", "unknown row 'bigg': did you mean 'big'?"),
        ("QUICK --rows big,base,big", "row 'big' is given twice"),
        ("QUICK --seeds 1-3,2", "--seeds holds 2 twice"),
        *(
            (f"QUICK --seeds 1,{part}", f"--seeds holds '{part}', {SEEDS}")
            for part in ("-2", "5-1", f"1-{10**18}", f"{2**63}")
        ),
        *(
            (f"run table1 {more}", "table1 takes only --directory, --device and --quick")
            for more in ("--seeds 1-3", "--shard 2/8")
        ),
        ("QUICK --from nowhere", "nowhere is not the directory of a table: it has no table.json"),
        ("QUICK --workers 0", 'Invalid value "0" for --workers. Must be >= 1; see --help'),
        ("QUICK --threads 0", 'Invalid value "0" for --threads. Must be >= 1; see --help'),
        (
            "QUICK --workers 1.5",
            "Invalid value for --workers: 1.5 is not a whole number; see --help",
        ),
        ("QUICK --directory=", "Invalid value for --directory: a path is empty; see --help"),
        ("collect . --into=", "Invalid value for --into: a path is empty; see --help"),
        ("dashboard --host=", "--host is empty: name an address, or leave it out"),
        (
            "search base_lr --scale quick --trials 9 --confirm 0",
            'Invalid value "0" for --confirm. Must be >= 1; see --help',
        ),
        *(
            (f"QUICK --shard={text}", f"--shard is {text}, {SHARDS}")
            for text in ("0/3", "4/3", "1", "a/b", "-1/3", "1/3/5", "")
        ),
        (
            "QUICK --ray auto --workers 2",
            "--workers is for this machine: a Ray cluster has its own resources",
        ),
        (
            "QUICK --ray auto --devices-per-trial 2 --trials-per-device 2",
            "on a Ray cluster runs share a GPU (--trials-per-device) or have several "
            "(--devices-per-trial), but not both",
        ),
        ("QUICK --retries 100001", "--retries may be at most 100,000"),
        ("QUICK --workers 577", "--workers is 577, but may be at most 576 on this machine"),
        (
            "QUICK --trials-per-device 65",
            "runs at a time by --trials-per-device is 585, but may be at most 576 on this machine",
        ),
        (
            "QUICK --ray auto --trials-per-device 65",
            "--trials-per-device is 65, but may be at most 64 on this machine",
        ),
        (
            f"QUICK --ray auto --devices-per-trial {10**400}",
            "--devices-per-trial may be at most 100,000",
        ),
        (
            "QUICK --accumulate 99999",
            "accumulate is 99999, but must be at least 1 and at most 200, so that each part of a "
            "batch has a token",
        ),
        (
            f"QUICK --seeds {','.join(f'{n}001-{n + 1}000' for n in range(1, 7))}",
            "20 rows with 6,000 seeds are over 100,000 runs",
        ),
        (
            "search base_lr --scale quick --trials 100001",
            "--trials is 100001, but must be at least 1 and at most 100,000",
        ),
        (
            "search base_lr --scale quick --trials 4 --confirm 5",
            "--confirm is 5, but there are 4 trials in all",
        ),
        ("QUICK --ray auto", "ray is not installed: pip install '.[ray]' in the project's folder"),
        ("search base_lr --scale quick --trials 0", "--trials is 0, but must be at least 1"),
        (
            "QUICK --directory /proc/none/here",
            "/proc/none/here cannot be made (No such file or directory): choose another directory",
        ),
        ("status .", ". is not the directory of a table: it has no table.json"),
        ("report nowhere", "nowhere is not the directory of a table: it has no table.json"),
    ],
)
def test_bad_input_is_one_line_and_exit_code_2(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, call: Call, arguments: str, message: str
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setitem(sys.modules, "ray", None)
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "")
    monkeypatch.setattr("ablations.runs.options.count_cores", lambda: 9)
    arguments = arguments.replace("QUICK", "run table3 --scale quick")
    assert call(arguments) == (2, f"python -m ablations: error: {message}\n")
    assert not list(tmp_path.iterdir())


def test_seeds_may_be_ranges() -> None:
    assert parse_seeds("7,0, 2 - 3 ,5-5") == (0, 2, 3, 5, 7)


def test_list_names_all_rows_and_scales(call: Call) -> None:
    code, shown = call("list")
    assert code == 0
    for word in ("table3", "C-ff4096", "big", "quick: cldr_en_de", "small: multi30k", "paper:"):
        assert word in shown


def test_shards_of_unlike_machines_that_start_together_share_a_precision(
    out: Path, call: Call, monkeypatch: pytest.MonkeyPatch
) -> None:
    settings = {**TINY.settings, "precision": "auto"}  # which is fp32 on this machine
    scales = (replace(TINY, settings=settings),)
    monkeypatch.setattr("tests.ablations.samples.SMALL_TABLE", replace(SMALL_TABLE, scales=scales))
    other, _ = Selection(scale="tiny").plan(load_table("pair.py"))
    other = replace(other, base=override(other.base, precision="bf16"))

    @contextmanager
    def lock_late(root: Path, shard: Shard) -> Generator[None]:
        claim_plan(root, other)
        yield

    monkeypatch.setattr("ablations.run.lock_runs", lock_late)
    code, said = call(f"{RUN} --shard 1/2")
    assert code == 0, said
    assert load_plan(out).base.training.precision == "bf16"


@pytest.mark.slow
def test_a_table_runs_and_is_reported(
    out: Path, call: Call, monkeypatch: pytest.MonkeyPatch
) -> None:
    tracked: list[Any] = []
    monkeypatch.setattr("ablations.run.track_table_run", tracked.append)
    code, shown = call(f"{RUN} --accumulate 4")
    assert code == 0
    assert "pair at scale tiny in out: 0 of 2 already done, 1 at a time on the CPU" in shown
    assert "report: out/report.html" in shown
    assert "2 of 2 runs finished" in (out / "report.md").read_text()
    assert "2 of 2 already done" in call(RUN)[1]
    assert tracked == [Path("out")]  # once, as nothing was new the second time
    assert started(out) == ["base/seed-1", "narrow/seed-1"]
    lines = (out / STARTED_FILE).read_text().splitlines()
    assert [line.split()[2] for line in lines] == ["4", "4"]  # parts of a step
    left = {path.name for path in out.iterdir() if path.name[0] != "."}
    for name in left - {"base", "narrow", SETTINGS_FILE, STARTED_FILE}:
        with pytest.raises(InputError, match="nor end like a file"):
            check_name("row", name)


@pytest.mark.slow
def test_a_tables_runs_are_compiled_or_not_as_its_command_says(out: Path, call: Call) -> None:
    """It is no part of their identity, so another call may say otherwise."""
    for option, expected in (("--no-compile", False), ("--compile", True), ("", None)):
        assert call(f"{RUN} {option}")[0] == 0
        assert load_plan(out).base.training.compile is expected
    assert started(out) == ["base/seed-1", "narrow/seed-1"]


@pytest.mark.slow
def test_a_table_adds_to_finished_runs_of_another_directory(out: Path, call: Call) -> None:
    assert call(f"{RUN.replace('base,narrow', 'base')} --threads 3")[0] == 0
    assert "1 runs added to kept" in call("collect out --into kept")[1]
    prepare_stand_ins(out.with_name("more"), {})
    shown = call(f"{RUN.replace('out', 'more')} --from kept")[1]
    assert "1 finished run taken from kept" in shown
    assert started(out.with_name("more")) == ["narrow/seed-1"]
    assert load_plan(out.with_name("more")).base.training.threads == 3
    code, shown = call(f"{RUN.replace('out', 'less')} --from kept --threads 2")
    assert code == 2
    assert "kept has no run of this table: base/seed-1 has other settings (training.thr" in shown
    assert not out.with_name("less").exists()


@pytest.mark.slow
def test_a_table_goes_on_in_a_directory_of_results(out: Path, call: Call) -> None:
    assert call(RUN.replace("base,narrow", "base"))[0] == 0
    assert call("collect out --into kept")[0] == 0
    kept = out.with_name("kept")
    prepare_stand_ins(kept, {})
    code, shown = call(RUN.replace("out", "kept"))
    assert code == 0 and "1 of 2 already done" in shown
    assert started(kept) == ["narrow/seed-1"] and not (kept / "base").exists()
    assert call("verify kept")[1].endswith("files, all as they were\n")
    assert "2 runs added to more" in call("collect kept --into more")[1]
    assert sorted(Collection(out.with_name("more")).lines) == ["base/seed-1", "narrow/seed-1"]


@pytest.mark.slow
def test_a_table_continues_from_another_with_fewer_rows_after_a_kill(
    out: Path, call: Call, monkeypatch: pytest.MonkeyPatch
) -> None:
    less = SMALL_TABLE.rows[:1]
    (out.parent / "less.py").write_text(
        "from dataclasses import replace\n"
        "from tests.ablations.samples import SMALL_TABLE\n"
        "TABLE = replace(SMALL_TABLE, rows=SMALL_TABLE.rows[:1])\n"
    )
    prepare_stand_ins(out.with_name("few"), {})
    command = "run less.py --scale tiny --seeds 1,2 --workers 1 --directory few"
    assert call(command)[0] == 0 and [x.name for x in load_plan(out.with_name("few")).rows] == [
        row.name for row in less
    ]
    prepare_stand_ins(out, {NARROW: "refuse"})
    assert call(f"{RUN} --from few")[0] == 1  # in place of a kill, which leaves as much behind
    plan = load_plan(out)
    prepare_stand_ins(out, {})
    code, shown = call(f"{RUN} --from few --retry-failed")
    assert code == 0 and "0 finished runs taken from few" in shown, shown
    assert load_plan(out) == plan and [row.name for row in plan.rows] == ["base", "narrow", "free"]
    assert started(out) == ["narrow/seed-1", "narrow/seed-1"]


@pytest.mark.slow
def test_two_drivers_do_not_take_a_run_from_each_other(out: Path, call: Call) -> None:
    """Which shards of different seeds may both have."""
    prepare_stand_ins(out, {}, step_seconds=0.001)
    run = RUN.replace("base,narrow", "base")
    command = [sys.executable, "-m", "tests.ablations.with_stand_ins", *run.split()]
    first = subprocess.Popen(
        [*command, "--seeds", "2", "--shard", "1/2"], stdout=subprocess.DEVNULL
    )
    when(lambda: bool(started(out)), lambda: None).join()
    code, shown = call(f"{run} --seeds 1,2 --shard 2/2")
    assert code == 0 and "seed-2: another driver works on it, and this one waits" in shown
    assert first.wait(60) == 0 and started(out) == ["base/seed-2"]


def test_a_directory_of_something_else_is_refused(out: Path, call: Call) -> None:
    (out / SETTINGS_FILE).unlink()
    search = "search base_lr --scale small --trials 3 --directory out"
    for command, file in ((RUN, "config.json"), (RUN, "search.json"), (search, "table.json")):
        (out / file).touch()
        code, shown = call(command)
        assert code == 2 and f"out has other runs ({file}): choose another directory" in shown
        assert [path.name for path in out.iterdir()] == [file]
        (out / file).unlink()


@pytest.mark.slow
def test_a_call_that_is_refused_changes_no_plan(out: Path, call: Call) -> None:
    assert call(RUN)[0] == 0
    before = (out / "table.json").read_bytes()
    with lock_runs(out, WHOLE):
        code, shown = call(f"{RUN} --seeds 1,2")
    assert code == 2 and "out is being worked on by process" in shown
    assert (out / "table.json").read_bytes() == before


@pytest.mark.slow
def test_shards_carry_out_every_nth_run(out: Path, call: Call) -> None:
    assert call(f"{RUN} --seeds 1,2,3 --shard 2/2")[0] == 0
    assert started(out) == ["base/seed-2", "narrow/seed-1", "narrow/seed-3"]
    assert not (out / "study.log").exists()  # which has one writer
    assert call(f"{RUN} --seeds 1,2,3 --shard 1/2")[0] == 0
    assert started(out)[3:] == ["base/seed-1", "base/seed-3", "narrow/seed-2"]
    assert call(f"{RUN} --seeds 1-4")[0] == 0
    assert started(out)[6:] == ["base/seed-4", "narrow/seed-4"]
    attributes = [trial.user_attrs for trial in journal(out)]
    assert len({x["cell"] for x in attributes}) == len(attributes) == 8
    assert {x["d_ff"] for x in attributes} == {128, 256}


@pytest.mark.parametrize(
    ("behaviour", "code", "said"),
    [
        ({BASE: "crash"}, 1, "base, seed 1: failed (exit code 1: RuntimeError: it broke)"),
        (
            {BASE: "block"},
            2,
            "ablations: error: base/seed-1: text.en does not exist\n",
        ),
        (
            {BASE: "refuse", NARROW: "refuse"},
            2,
            "ablations: error: base/seed-1 (and 1 more): toy is missing: fetch it\n",
        ),
    ],
    ids=["crash", "block", "refuse all"],
)
def test_a_run_that_fails_is_told_and_only_what_concerns_all_stops_all(
    out: Path, call: Call, behaviour: dict[Cell, str], code: int, said: str
) -> None:
    prepare_stand_ins(out, behaviour)
    found, shown = call(RUN.replace("--workers 1", "--workers 2"))
    assert found == code and said in shown


@pytest.mark.parametrize(
    ("number", "code"),
    [
        (signal.SIGTERM, 143),
        pytest.param(signal.SIGHUP, 129, marks=pytest.mark.slow),
        pytest.param(signal.SIGINT, 130, marks=pytest.mark.slow),
        pytest.param(signal.SIGUSR1, 138, marks=pytest.mark.slow),
    ],
)
def test_a_signal_ends_with_its_exit_code(
    out: Path, call: Call, number: signal.Signals, code: int
) -> None:
    prepare_stand_ins(out, {BASE: "hang"})
    before = signal.getsignal(number)
    thread = when(lambda: hangs(out, BASE), lambda: os.kill(os.getpid(), number))
    found, shown = call(RUN)
    thread.join()
    assert found == code and signal.getsignal(number) is before
    assert started(out) == ["base/seed-1"]
    assert "stopping after a checkpoint (a second signal kills the runs)" in shown
    assert "base/seed-1: stopped after a checkpoint" in shown
    assert "base, seed 1: step 40 of 1,500" in shown
    assert "the same command continues from here" in shown


@pytest.mark.slow
def test_a_driver_that_is_killed_is_replaced_by_the_same_command(out: Path, call: Call) -> None:
    prepare_stand_ins(out, {BASE: "hang"})
    command = [sys.executable, "-m", "tests.ablations.with_stand_ins", *RUN.split()]
    first = subprocess.Popen(command, stdout=subprocess.DEVNULL)
    when(lambda: hangs(out, BASE), lambda: None).join()
    first.kill()
    first.wait()
    prepare_stand_ins(out, {})
    code, shown = call(RUN)
    assert code == 0 and "base/seed-1: started (attempt 2)" in shown
    assert started(out) == ["base/seed-1", "base/seed-1", "narrow/seed-1"]


IMPORTS = """
import sys
from ablations.cli import PROGRAM

for arguments in (["list"], ["status", "out"]):
    sys.argv = ["ablations", *arguments]
    assert PROGRAM.run() == 0
    heavy = {"torch", "lightning", "numpy", "mpmath", "optuna", "sqlalchemy", "wandb"}
    assert not heavy & set(sys.modules), (arguments, heavy & set(sys.modules))
import ablations.run
assert not {"torch", "lightning"} & set(sys.modules)
"""


@pytest.mark.slow
def test_what_answers_at_once_imports_nothing_heavy_and_nothing_imports_torch(out: Path) -> None:
    claim_plan(out, small_plan())
    done = subprocess.run(
        [sys.executable, "-c", IMPORTS], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
