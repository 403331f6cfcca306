"""The same table without a fleet, and what a fleet must have left to be its equal."""

from __future__ import annotations

import json
import re
from collections import Counter
from pathlib import Path

import optuna
import pytest
from optuna.storages import RDBStorage
from optuna.trial import TrialState

from ablations.plan import load_plan, make_plan
from ablations.tables import load_table
from experiments.experiment import claim
from experiments.process import LOG_FILE
from experiments.run import run
from tests.ablations.storm import stand_in
from tests.ablations.storm.place import SEEDS, Place
from tests.experiments.samples import assert_same_end, outcome


def run_undisturbed(place: Place, directory: Path) -> Path:
    """Run each cell below ``directory``, one after the other in this process."""
    table = load_table(str(place.table))
    plan = make_plan(table, table.scales[0], table.rows, SEEDS)
    with pytest.MonkeyPatch.context() as patch:
        for name, value in place.environment(STORM_STEP_SECONDS="0").items():
            patch.setenv(name, value)
        for cell in plan.cells:
            alone = cell.directory(directory)
            if place.step_seconds is None:
                run(plan.experiment(cell), alone, splits=("valid",))
            else:
                claim(alone, plan.experiment(cell))
                assert stand_in.train(alone) == 0
    return directory


def assert_as_undisturbed(place: Place, undisturbed: Path, storage: str) -> None:
    """Each cell once, none left over, and each bit by bit the undisturbed one's."""
    leftovers = [path.name for path in place.out.glob("*/seed-*") if "attempt" in path.name]
    assert leftovers == []
    for cell in place.cells:
        found, expected = cell.directory(place.out), cell.directory(undisturbed)
        assert outcome(found) == outcome(expected), cell
        hypotheses = "valid.hypotheses.txt"
        assert (found / hypotheses).read_bytes() == (expected / hypotheses).read_bytes(), cell
        if place.step_seconds is None:
            assert_same_end(found, expected)
        else:
            assert _losses(found) == _losses(expected), cell
        starts = [int(step) for step in re.findall(r"at step (\d+)", _log(found))]
        assert starts == sorted(starts), f"{cell} lost a checkpoint: {starts}"
    # The worker that saw the last one end may have been killed before it told the study.
    told = _completed(place, storage)
    assert [name for name, times in told.items() if times > 1] == []
    assert told.keys() <= set(map(str, place.cells))


def _completed(place: Place, url: str) -> Counter[str]:
    """How often each cell counts as done in the study."""
    storage = RDBStorage(url)
    study = optuna.load_study(study_name=load_plan(place.out).study, storage=storage)
    trials = study.get_trials(deepcopy=False, states=(TrialState.COMPLETE,))
    storage.engine.dispose()
    return Counter(trial.user_attrs["cell"] for trial in trials)


def _losses(directory: Path) -> list[float]:
    """What a stand-in's last checkpoint holds."""
    last = max((directory / "checkpoints").glob("*.json"), key=lambda path: int(path.stem))
    return json.loads(last.read_text())


def _log(directory: Path) -> str:
    return (directory / LOG_FILE).read_text(encoding="utf-8", errors="replace")
