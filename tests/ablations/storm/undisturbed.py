"""The same table without faults, and what drivers must have left to be its equal."""

from __future__ import annotations

import json
import shutil
from collections.abc import Sequence
from pathlib import Path

import pytest

from ablations.tables.find import load_table
from ablations.tables.plan import make_plan
from experiments.records.outputs import METRICS_FILE, read_metrics
from experiments.records.ownership import claim
from experiments.run import run
from tests.ablations import stand_in
from tests.ablations.samples import prepare_stand_ins
from tests.ablations.search.samples import journal
from tests.ablations.storm.damage import FlippedBit
from tests.ablations.storm.place import Place
from tests.experiments.samples import assert_same_end, outcome
from transformer.files import read_json


def run_undisturbed(place: Place, directory: Path) -> Path:
    """Run each cell below ``directory``, one after the other in this process."""
    table = load_table(str(place.table))
    plan = make_plan(table, table.scales[0], table.rows, place.seeds)
    with pytest.MonkeyPatch.context() as patch:
        for name, value in place.environment().items():
            patch.setenv(name, value)
        for cell in plan.cells:
            alone = cell.directory(directory)
            if place.step_seconds is None:
                run(plan.experiment(cell), alone)
            else:
                claim(alone, plan.experiment(cell))
                prepare_stand_ins(directory, {})
                settings = read_json(directory / stand_in.SETTINGS_FILE)
                assert stand_in.train(alone, settings) == 0
    return directory


def assert_as_undisturbed(
    place: Place, undisturbed: Path, flipped: Sequence[FlippedBit] = ()
) -> None:
    """Each cell once, none left over, and each bit by bit the undisturbed one's.

    Where a bit of a result was ``flipped`` the cell was done again, and a line of figures that
    became unreadable is gone; all else is as it was.
    """
    leftovers = [path.name for path in place.out.glob("*/seed-*") if "attempt" in path.name]
    assert leftovers == []
    damaged = {(bit.path.name, bit.cell) for bit in flipped}
    for cell in place.cells:
        found, expected = cell.directory(place.out), cell.directory(undisturbed)
        assert outcome(found) == outcome(expected), cell
        hypotheses = "valid.hypotheses.txt"
        assert (found / hypotheses).read_bytes() == (expected / hypotheses).read_bytes(), cell
        if place.step_seconds is None:
            if (METRICS_FILE, found) in damaged:
                _complete_metrics(found, expected)
            assert_same_end(found, expected)
        else:
            assert _losses(found) == _losses(expected), cell
            starts = [int(step) for step in (found / stand_in.STARTS_FILE).read_text().split()]
            assert starts == sorted(starts), f"{cell} lost a checkpoint"
    names = [trial.user_attrs["cell"] for trial in journal(place.out)]
    assert sorted(names) == sorted(map(str, place.cells))  # each is one trial


def assert_tidy(place: Place) -> None:
    """Nothing is half-written, and no process has said anything of a fault of ours."""
    kept = [path for top in (place.out, place.cache) for path in top.rglob("*")]
    unfinished = (".part", ".tmp", ".work")
    assert [path for path in kept if any(word in path.name for word in unfinished)] == []
    logs = [*place.folder.glob("*/log.txt"), *place.out.glob("*/*/log.txt")]
    assert logs
    for log in logs:
        assert "Traceback" not in log.read_text(encoding="utf-8", errors="replace"), log


def _complete_metrics(directory: Path, other: Path) -> None:
    """Take the figures of ``other``, of which those in ``directory`` must be a part."""
    lines, expected = read_metrics(directory), read_metrics(other)
    assert [line for line in lines if line not in expected] == []
    shutil.copy(other / METRICS_FILE, directory)


def _losses(directory: Path) -> list[float]:
    """What a stand-in's last checkpoint holds."""
    last = max((directory / "checkpoints").glob("*.json"), key=lambda path: int(path.stem))
    return json.loads(last.read_text())
