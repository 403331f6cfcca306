"""The commands as processes: exit codes, messages, signals, and what they do not import."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Mapping
from pathlib import Path

import pytest

from ablations.table import Cell
from tests.ablations.samples import fill_table3, prepare_fakes, started

ROOT = Path(__file__).parents[2]
TABLE_FILE = """
from tests.ablations.samples import SMALL_TABLE as TABLE
"""


def environment() -> dict[str, str]:
    paths = [str(ROOT), os.environ.get("PYTHONPATH", "")]
    return os.environ | {"PYTHONPATH": os.pathsep.join(paths), "CUDA_VISIBLE_DEVICES": ""}


def call(
    *arguments: str, where: Path, module: str = "ablations"
) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", module, *arguments],
        cwd=where,
        env=environment(),
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )


def command(where: Path, behaviour: Mapping[Cell, str]) -> list[str]:
    """``run`` of the small table with stand-ins, in ``where``."""
    (where / "pair.py").write_text(TABLE_FILE)
    prepare_fakes(where / "out", behaviour)
    arguments = "run pair.py --scale tiny --rows base,narrow --workers 1 --directory out"
    return [sys.executable, "-m", "tests.ablations.fake_ablations", *arguments.split()]


def spawn(where: Path, behaviour: Mapping[Cell, str]) -> subprocess.Popen[str]:
    return subprocess.Popen(
        command(where, behaviour),
        cwd=where,
        env=environment(),
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )


def wait_for(path: Path) -> None:
    deadline = time.monotonic() + 30
    while not path.exists() and time.monotonic() < deadline:
        time.sleep(0.02)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ("run tabel3 --scale quick", "unknown table 'tabel3': did you mean 'table3'?"),
        ("run table3 --scale quik", "unknown scale 'quik': did you mean 'quick'?"),
        (
            "run table3 --scale quick --rows base,A-h1,bigg",
            "unknown row 'bigg': did you mean 'big'?",
        ),
        ("run table3 --scale quick --rows E,E", "row 'E' is given twice"),
        ("run table3 --scale quick --seeds 1,2,1", "--seeds holds 1 twice"),
        (
            "run table3 --scale quick --seeds 1,-2",
            "--seeds holds '-2', but takes whole numbers such as 1,2,3",
        ),
        (
            "run table3 --scale quick --workers 0",
            "--workers is 0, but must be at least 1",
        ),
        ("status .", ". is not the directory of a table: it has no table.json"),
        ("report nowhere", "nowhere is not the directory of a table: it has no table.json"),
    ],
)
def test_bad_input_is_one_line_and_exit_code_2(
    tmp_path: Path, arguments: str, message: str
) -> None:
    done = call(*arguments.split(), where=tmp_path)
    assert (done.returncode, done.stderr) == (2, f"ablations: error: {message}\n")
    assert done.stdout == ""
    assert not list(tmp_path.iterdir())


def test_list_names_all_rows_and_scales(tmp_path: Path) -> None:
    done = call("list", where=tmp_path)
    assert done.returncode == 0
    for word in ("table3", "C-ff4096", "big", "quick: cldr_en_de", "small: multi30k", "paper:"):
        assert word in done.stdout


def test_a_table_runs_and_is_reported(tmp_path: Path) -> None:
    process = spawn(tmp_path, {})
    shown, _ = process.communicate(timeout=60)
    assert process.returncode == 0, shown
    assert "pair at scale tiny in out: 2 runs, 0 done before, 1 at a time on the CPU" in shown
    assert "report: out/report.md and out/report.html" in shown
    assert "2 of 2 runs finished" in (tmp_path / "out" / "report.md").read_text()
    again = subprocess.run(command(tmp_path, {}), cwd=tmp_path, env=environment(), check=False)
    assert again.returncode == 0
    assert started(tmp_path / "out") == ["base/seed-1", "narrow/seed-1"]


def test_a_crashed_run_is_exit_code_1_and_in_the_report(tmp_path: Path) -> None:
    process = spawn(tmp_path, {Cell("base", 1): "crash"})
    shown, _ = process.communicate(timeout=60)
    assert process.returncode == 1
    assert "base, seed 1: failed (exit code 1: RuntimeError: it broke)" in shown
    assert "1 of 2 runs finished" in shown


def test_bad_input_of_a_run_is_the_tables(tmp_path: Path) -> None:
    process = spawn(tmp_path, {Cell("base", 1): "refuse"})
    shown, _ = process.communicate(timeout=60)
    assert process.returncode == 2
    assert shown.endswith("ablations: error: base/seed-1: toy is missing: fetch it\n")


@pytest.mark.parametrize(("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_a_signal_ends_with_its_exit_code(
    tmp_path: Path, number: signal.Signals, code: int
) -> None:
    process = spawn(tmp_path, {Cell("base", 1): "hang"})
    wait_for(tmp_path / "out/base/seed-1/progress.json")
    process.send_signal(number)
    shown, _ = process.communicate(timeout=60)
    assert process.returncode == code, shown
    assert "step 40 of 1,500" in shown
    assert "the same command goes on from here" in shown


def test_a_second_coordinator_is_refused_and_a_killed_one_replaced(tmp_path: Path) -> None:
    first = spawn(tmp_path, {Cell("base", 1): "hang"})
    wait_for(tmp_path / "out/base/seed-1/progress.json")
    second = spawn(tmp_path, {Cell("base", 1): "hang"})
    shown, _ = second.communicate(timeout=60)
    assert second.returncode == 2
    assert f"out is being run by process {first.pid} on" in shown
    assert f"run by process {first.pid} on" in call("status", "out", where=tmp_path).stdout
    first.kill()
    first.communicate(timeout=60)
    assert "nobody runs it now" in call("status", "out", where=tmp_path).stdout
    third = spawn(tmp_path, {})
    shown, _ = third.communicate(timeout=60)
    assert third.returncode == 0, shown
    assert "base/seed-1: ended the process that an earlier call left behind" in shown
    assert started(tmp_path / "out") == ["base/seed-1", "base/seed-1", "narrow/seed-1"]


IMPORTS = """
import sys
sys.argv = ["ablations", *{arguments!r}]
from ablations.__main__ import main
code = main()
heavy = {{"torch", "lightning", "numpy", "optuna", "sqlalchemy", "wandb"}} & set(sys.modules)
sys.exit(f"{{heavy}} imported" if heavy else code)
"""


@pytest.mark.parametrize("arguments", [["list"], ["status", "out"], ["report", "out"]])
def test_what_answers_at_once_imports_nothing_heavy(tmp_path: Path, arguments: list[str]) -> None:
    fill_table3(tmp_path / "out")
    done = subprocess.run(
        [sys.executable, "-c", IMPORTS.format(arguments=arguments)],
        cwd=tmp_path,
        env=environment(),
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr


def test_running_imports_no_torch(tmp_path: Path) -> None:
    code = "import sys, ablations.coordinator; sys.exit('torch' in sys.modules)"
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=tmp_path, env=environment(), check=False
    )
    assert done.returncode == 0
