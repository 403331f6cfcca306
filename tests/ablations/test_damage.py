"""Whatever is in a file of a table, each command names the file or does without it."""

from __future__ import annotations

import itertools
import json
import shutil
import warnings
from pathlib import Path

import pytest

from ablations.cli import PROGRAM
from ablations.dashboard.page import Reader
from ablations.files import PLAN_FILE
from ablations.runs.lock import WHOLE, lock_runs
from ablations.tables.plan_file import claim_plan
from ablations.tables.table import Cell
from experiments import cli as experiments_cli
from experiments.records.attempt import Attempt, write_attempt
from experiments.records.ownership import claim
from experiments.records.progress import Progress, RunState, write_progress
from tests.ablations.samples import finish, small_plan
from transformer.errors import InputError
from transformer.files import write_json

pytestmark = pytest.mark.usefixtures("undrawn")

DRIVER_FILE = ".driver.lock"
BASE, NARROW = Cell("base", 1), Cell("narrow", 1)
OF_RUN = (
    "config.json", "data.json", "result.json", "progress.json", "attempt.json",
    "valid.samples.json",
)  # fmt: skip
STRANGE = (None, [], {}, "x", -1, 0.5, float("nan"), float("inf"))


@pytest.fixture(scope="module")
def sound(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("sound") / "table"
    plan = claim_plan(root, small_plan())
    for cell in (BASE, NARROW):
        finish(root, cell, 5.0, 20.0)
        directory = cell.directory(root)
        claim(directory, plan.experiment(cell))
        write_json(directory / "data.json", {"sources": [], "files": {}, "digest": "0" * 16})
        write_progress(directory, Progress(stage=RunState.DONE, step=9, max_steps=9))
        write_attempt(
            directory, Attempt(cell=str(cell), number=1, worker="w", host="h", started_at=1.0)
        )
        sample = {"chrf": 1.0, "source": "a", "reference": "b", "translation": "c"}
        write_json(directory / "valid.samples.json", {"samples": [sample]})
    with lock_runs(root, WHOLE):
        return root


def _commands(root: Path) -> dict[str, int]:
    """The exit code of each command that reads a table."""
    target = root.with_name("copy")
    codes = {name: PROGRAM.run([name, str(root)]) for name in ("status", "report")}
    codes["collect"] = PROGRAM.run(["collect", str(root), "--into", str(target)])
    shutil.rmtree(target, ignore_errors=True)
    codes["verify"] = experiments_cli.PROGRAM.run(["verify", str(BASE.directory(root))])
    try:
        for spec in Reader(root).read().figures.values():
            json.dumps(spec, allow_nan=False)
        codes["dashboard"] = 0
    except InputError as error:
        print(error)
        codes["dashboard"] = 2
    return codes


@pytest.mark.parametrize("name", [*(f"base/seed-1/{x}" for x in OF_RUN), PLAN_FILE, DRIVER_FILE])
def test_a_damaged_file_is_named_or_does_not_matter(
    name: str, sound: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    root = shutil.copytree(sound, tmp_path / "table")
    (root / name).write_bytes(b"\xff\xfe{}")  # tests/test_files.py has other damage
    with warnings.catch_warnings(record=True) as warned:
        warnings.simplefilter("always")
        codes = _commands(root)
    printed = capsys.readouterr()
    assert set(codes.values()) <= {0, 2}, codes
    said = "".join([printed.out, printed.err, *(str(each.message) for each in warned)])
    if not name.endswith(("progress.json", "samples.json", DRIVER_FILE)):
        assert str(root / name) in said
    if name != PLAN_FILE:  # without which there is no table
        assert codes["status"] == codes["report"] == codes["collect"] == 0


@pytest.mark.slow
@pytest.mark.parametrize("name", [*(f"base/seed-1/{x}" for x in OF_RUN), PLAN_FILE])
def test_a_strange_value_is_no_crash(name: str, sound: Path, tmp_path: Path) -> None:
    root = shutil.copytree(sound, tmp_path / "table")
    values = json.loads((root / name).read_text())
    # Each field once, and each strange value for some.
    for field, strange in zip(values, itertools.cycle(STRANGE), strict=False):
        (root / name).write_text(json.dumps(values | {field: strange}))
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            codes = _commands(root)
        assert set(codes.values()) <= {0, 2}, (field, strange)
