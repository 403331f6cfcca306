"""The commands as processes: exit codes, messages, signals, and what they do not import."""

from __future__ import annotations

import errno
import json
import os
import shutil
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any
from wsgiref.util import setup_testing_defaults

import pytest
from optuna.storages import JournalStorage
from optuna.storages.journal import JournalFileBackend

from ablations.cli import PROGRAM
from ablations.files import check_name
from ablations.runs.lock import WHOLE, lock_runs
from ablations.tables.find import parse_seeds
from ablations.tables.plan import claim_plan, load_plan
from ablations.tables.table import Cell
from tests.ablations.samples import (
    hangs,
    prepare_stand_ins,
    small_plan,
    start_stand_in,
    started,
    when,
)
from tests.ablations.search.samples import journal
from tests.ablations.stand_in import SETTINGS_FILE, STARTED_FILE
from transformer.errors import InputError

ROOT = Path(__file__).parents[2]
RUN = "run pair.py --scale tiny --rows base,narrow --workers 1 --directory out"


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A working directory with the file of the small table; runs there are stand-ins."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "")
    monkeypatch.setenv("WANDB_MODE", "disabled")
    monkeypatch.setenv("PYTHONPATH", f"{ROOT}{os.pathsep}{os.environ.get('PYTHONPATH', '')}")
    monkeypatch.setattr("ablations.runs.process.fork", start_stand_in)
    (tmp_path / "pair.py").write_text("from tests.ablations.samples import SMALL_TABLE as TABLE")
    return tmp_path


def call(arguments: str, monkeypatch: pytest.MonkeyPatch) -> int:
    """The exit code of the command line, in this process."""
    monkeypatch.setattr(sys, "argv", ["ablations", *arguments.split()])
    return PROGRAM.run()


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ("run tabel3 --scale quick", "unknown table 'tabel3': did you mean 'table3'?"),
        ("run table3 --scale quik", "unknown scale 'quik': did you mean 'quick'?"),
        ("run table3", "table3 needs --scale: list prints the scales"),
        ("run table3 --scale quick --rows base,bigg", "unknown row 'bigg': did you mean 'big'?"),
        *(
            (
                f"run table3 --scale quick --seeds {seeds}",
                f"--seeds holds '{part}', but takes whole numbers and ranges such as 1-5,7, of at "
                "most 1,000 seeds",
            )
            for seeds, part in (("1,-2", "-2"), ("5-1", "5-1"), (f"1-{10**18}", f"1-{10**18}"))
        ),
        (
            "run table3 --scale quick --workers 0",
            'Invalid value "0" for --workers. Must be >= 1; see --help',
        ),
        (
            "run table3 --scale quick --shard 3/2",
            "--shard is 3/2, but must be like 2/8, the second of eight",
        ),
        (
            "run table3 --scale quick --ray auto --workers 2",
            "--workers is for this machine: a Ray cluster has its own resources",
        ),
        (
            "run table3 --scale quick --ray auto --devices-per-trial 2 --trials-per-device 2",
            "on a Ray cluster runs share a GPU (--trials-per-device) or have several "
            "(--devices-per-trial), but not both",
        ),
        (
            "search base_lr --scale quick --trials 0",
            "--trials is 0, but must be at least 1",
        ),
        ("status .", ". is not the directory of a table: it has no table.json"),
        ("report nowhere", "nowhere is not the directory of a table: it has no table.json"),
    ],
)
def test_bad_input_is_one_line_and_exit_code_2(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    arguments: str,
    message: str,
) -> None:
    monkeypatch.chdir(tmp_path)
    assert call(arguments, monkeypatch) == 2
    assert capsys.readouterr() == ("", f"python -m ablations: error: {message}\n")
    assert not list(tmp_path.iterdir())


def test_seeds_may_be_ranges() -> None:
    assert parse_seeds("1-3,7") == (1, 2, 3, 7)
    assert parse_seeds("0, 5 - 6 ,4-4,5") == (0, 4, 5, 6)


def test_list_names_all_rows_and_scales(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert call("list", monkeypatch) == 0
    shown = capsys.readouterr().out
    for word in ("table3", "C-ff4096", "big", "quick: cldr_en_de", "small: multi30k", "paper:"):
        assert word in shown


def test_a_table_runs_and_is_reported(
    place: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    prepare_stand_ins(place / "out", {})
    tracked: list[Any] = []
    monkeypatch.setattr("ablations.run.track_table_run", tracked.append)
    assert call(RUN, monkeypatch) == 0
    shown = capsys.readouterr().out
    assert "pair at scale tiny in out: 2 runs, 0 done before, 1 at a time on the CPU" in shown
    assert "report: out/report.html" in shown
    assert "2 of 2 runs finished" in (place / "out" / "report.md").read_text()
    assert call(RUN, monkeypatch) == 0
    assert "2 runs, 2 done before" in capsys.readouterr().out
    assert tracked == [Path("out")]  # once, as nothing was new the second time
    assert started(place / "out") == ["base/seed-1", "narrow/seed-1"]
    stand_ins = {SETTINGS_FILE, STARTED_FILE}
    left = {path.name for path in (place / "out").iterdir() if path.name[0] != "."} - stand_ins
    for name in left - {"base", "narrow"}:
        with pytest.raises(InputError, match="nor end like a file"):
            check_name("row", name)


def test_a_table_adds_to_finished_runs_of_another_directory(
    place: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("ablations.run.track_table_run", lambda root: None)
    prepare_stand_ins(place / "out", {})
    assert call(f"{RUN.replace('base,narrow', 'base')} --threads 3", monkeypatch) == 0
    assert call("collect out --into kept", monkeypatch) == 0
    assert "1 finished runs copied to kept" in capsys.readouterr().out
    prepare_stand_ins(place / "more", {})
    assert call(f"{RUN.replace('out', 'more')} --from kept", monkeypatch) == 0
    assert "1 finished runs taken from kept" in capsys.readouterr().out
    assert started(place / "more") == ["narrow/seed-1"]
    assert load_plan(place / "more").base.training.threads == 3
    assert call(f"{RUN.replace('out', 'less')} --from kept --threads 2", monkeypatch) == 2
    assert (
        "kept belongs to another table (base.training.threads: 3 -> 2)" in capsys.readouterr().err
    )
    assert not (place / "less").exists()


def test_a_directory_of_something_else_is_refused(
    place: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    search = "search base_lr --scale small --trials 3 --directory out"
    for file, command in (
        ("config.json", RUN),
        ("config.json", search),
        ("search.json", RUN),
        ("table.json", search),
    ):
        shutil.rmtree(place / "out", ignore_errors=True)
        (place / "out").mkdir()
        (place / "out" / file).write_text("{}")
        assert call(command, monkeypatch) == 2
        said = f"out has other runs ({file}): choose another --directory"
        assert said in capsys.readouterr().err
        assert [path.name for path in (place / "out").iterdir()] == [file]


def test_a_call_that_is_refused_changes_no_plan(
    place: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    prepare_stand_ins(place / "out", {})
    assert call(RUN, monkeypatch) == 0
    before = (place / "out" / "table.json").read_bytes()
    with lock_runs(place / "out", WHOLE):
        assert call(f"{RUN} --seeds 1,2", monkeypatch) == 2
    assert "out is being worked on by process" in capsys.readouterr().err
    assert (place / "out" / "table.json").read_bytes() == before


def test_shards_carry_out_every_nth_run(place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    prepare_stand_ins(place / "out", {})
    assert call(f"{RUN} --seeds 1,2,3 --shard 2/2", monkeypatch) == 0
    assert started(place / "out") == ["base/seed-2", "narrow/seed-1", "narrow/seed-3"]
    assert not (place / "out" / "study.log").exists()  # which has one writer
    assert call(f"{RUN} --seeds 1,2,3 --shard 1/2", monkeypatch) == 0
    assert started(place / "out")[3:] == ["base/seed-1", "base/seed-3", "narrow/seed-2"]
    assert call(f"{RUN} --seeds 1-4", monkeypatch) == 0
    assert started(place / "out")[6:] == ["base/seed-4", "narrow/seed-4"]
    names = [trial.user_attrs["cell"] for trial in journal(place / "out")]
    assert len(names) == len(set(names)) == 8


def test_optuna_dashboard_reads_the_journal(place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As a table's rows are its trials, with their settings as attributes."""
    prepare_stand_ins(place / "out", {})
    assert call(RUN, monkeypatch) == 0
    optuna_dashboard = pytest.importorskip("optuna_dashboard")
    storage = JournalStorage(JournalFileBackend(str(place / "out" / "study.log")))
    application = optuna_dashboard.wsgi(storage)
    found: dict[str, Any] = {}
    setup_testing_defaults(found)
    found |= {"PATH_INFO": "/api/studies/0", "QUERY_STRING": "after=0"}
    answer = json.loads(b"".join(application(found, lambda *_: None)))
    assert [trial["state"] for trial in answer["trials"]] == ["Complete", "Complete"]
    assert all("d_ff" in {x["key"] for x in each["user_attrs"]} for each in answer["trials"])
    assert "validation perplexity" in json.dumps(answer)


def test_a_directory_that_cannot_be_made_is_one_line(
    place: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert call(RUN.replace("out", "/proc/none/here"), monkeypatch) == 2
    shown = capsys.readouterr().err
    assert shown == (
        "python -m ablations: error: /proc/none/here cannot be made (No such file or directory): "
        "choose another --directory\n"
    )


def test_a_file_that_may_not_be_read_is_one_line(
    place: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def refuse(*_: object) -> None:
        raise PermissionError(errno.EACCES, "Permission denied", "out/table.json")

    monkeypatch.setattr("ablations.report.report.write_report", refuse)
    assert call("report out", monkeypatch) == 2
    shown = capsys.readouterr().err
    assert "Permission denied: 'out/table.json': check whose it is" in shown


def test_a_crashed_run_is_exit_code_1_and_in_the_report(
    place: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    prepare_stand_ins(place / "out", {Cell("base", 1): "crash"})
    assert call(RUN, monkeypatch) == 1
    shown = capsys.readouterr().out
    assert "base, seed 1: failed (exit code 1: RuntimeError: it broke)" in shown
    assert "1 of 2 runs finished" in shown


def test_bad_input_of_a_run_is_the_tables(
    place: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    prepare_stand_ins(place / "out", {Cell("base", 1): "refuse"})
    assert call(RUN, monkeypatch) == 2
    expected = "python -m ablations: error: base/seed-1: toy is missing: fetch it\n"
    assert capsys.readouterr().err == expected


def test_a_step_is_parted_as_asked_for(place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    prepare_stand_ins(place / "out", {})
    assert call(f"{RUN} --accumulate 4", monkeypatch) == 0
    lines = (place / "out" / "started.txt").read_text().splitlines()
    assert [line.split()[2] for line in lines] == ["4", "4"]


@pytest.mark.parametrize(
    ("number", "code"),
    [
        (signal.SIGHUP, 129),
        (signal.SIGINT, 130),
        (signal.SIGTERM, 143),
        (signal.SIGUSR1, 138),
    ],
)
def test_a_signal_ends_with_its_exit_code(
    place: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    number: signal.Signals,
    code: int,
) -> None:
    prepare_stand_ins(place / "out", {Cell("base", 1): "hang"})
    thread = when(
        lambda: hangs(place / "out", Cell("base", 1)), lambda: os.kill(os.getpid(), number)
    )
    assert call(RUN, monkeypatch) == code
    thread.join()
    shown = capsys.readouterr().out
    assert "base, seed 1: step 40 of 1,500" in shown
    assert "the same command continues from here" in shown


def test_a_driver_that_is_killed_is_replaced_by_the_same_command(
    place: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    out, base = place / "out", Cell("base", 1)
    prepare_stand_ins(out, {base: "hang"})
    command = [sys.executable, "-m", "tests.ablations.with_stand_ins", *RUN.split()]
    first = subprocess.Popen(command, stdout=subprocess.DEVNULL)
    when(lambda: hangs(out, base), lambda: None).join()
    first.kill()
    first.wait()
    prepare_stand_ins(out, {})
    assert call(RUN, monkeypatch) == 0
    shown = capsys.readouterr().out
    assert "base/seed-1: started (attempt 2)" in shown
    assert "; the process of an earlier attempt was ended first" in shown
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


def test_what_answers_at_once_imports_nothing_heavy_and_nothing_imports_torch(place: Path) -> None:
    claim_plan(place / "out", small_plan())
    done = subprocess.run(
        [sys.executable, "-c", IMPORTS], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
