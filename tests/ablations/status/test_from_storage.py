"""The states of runs by a study, as an engine leaves them there."""

from __future__ import annotations

import time
from pathlib import Path

import optuna
import pytest
from optuna.trial import TrialState
from sqlalchemy.engine import URL

from ablations.runner.identity import own_name
from ablations.runner.queue import DESCRIPTION
from ablations.runner.storage_url import storage_url
from ablations.status.from_storage import open_study
from tests.ablations.samples import small_plan
from tests.ablations.status.samples import training
from transformer.config import to_dict
from transformer.errors import InputError


@pytest.fixture(scope="module")
def url(tmp_path_factory: pytest.TempPathFactory) -> URL:
    """A database with a study of the small table in which cells are in several states."""
    place = storage_url(None, tmp_path_factory.mktemp("storage"))
    plan = small_plan(seeds=(1, 2, 3))
    storage = optuna.storages.RDBStorage(str(place))
    study = optuna.create_study(
        storage=storage, study_name="pair-tiny", directions=["minimize", "maximize"]
    )
    storage.set_study_system_attr(study._study_id, DESCRIPTION, to_dict(plan))
    old = optuna.create_study(storage=storage, study_name="old")
    old.set_user_attr("table", to_dict(plan))  # before it became a system attribute
    optuna.create_study(storage=storage, study_name="empty")
    _fill(study)
    storage.engine.dispose()
    return place


def _fill(study: optuna.Study) -> None:
    def start(cell: str, attempt: int, **facts: object) -> optuna.Trial:
        study.enqueue_trial({}, user_attrs={"cell": cell})
        trial = study.ask()
        known = {"worker": "node-a:17:1:x", "host": "node-a", "attempt": attempt, **facts}
        for name, value in known.items():
            trial.set_user_attr(name, value)
        return trial

    study.tell(start("base/seed-1", 1), [3.0, 80.0])
    study.tell(start("base/seed-2", 1, reason="it broke", given_up=False), state=TrialState.FAIL)
    progress = to_dict(training(400, loss=2.5, seconds_left=31.0))
    start("base/seed-2", 2, devices=[3], progress=progress)
    stopped = to_dict(training(9))
    study.tell(start("base/seed-3", 1, reason="stopped", progress=stopped), state=TrialState.FAIL)
    study.tell(start("narrow/seed-1", 1, reason="it broke", given_up=False), state=TrialState.FAIL)
    machine = own_name().rpartition(":")[2]
    start("narrow/seed-3", 1, worker=f"node-a:{2**22 + 1}:1:{machine}")  # which is no process
    study.enqueue_trial({}, user_attrs={"cell": "narrow/seed-2"})


def test_every_state_is_read_from_the_trials(url: URL) -> None:
    with open_study(url, "pair-tiny") as reader:
        status = reader.read()
    states = [run.state for run in status.runs]
    assert states == ["done", "running", "stopped", "failed", "waiting", "stopped"]
    done, running, _, failed, *_ = status.runs
    assert done.scores == {"perplexity": 3.0, "bleu": 80.0}
    assert (running.attempt, running.host, running.devices) == (2, "node-a", (3,))
    assert running.progress is not None and running.progress.loss == 2.5
    assert running.heard_at == pytest.approx(time.time(), abs=60)
    assert [(failure.attempt, failure.reason) for failure in running.failures] == [(1, "it broke")]
    assert failed.failures[0].reason == "it broke"
    assert running.seconds_left == 31.0
    assert status.seconds_left is not None and status.seconds_left > 31.0
    assert [(host.name, host.runs) for host in status.hosts] == [("node-a", 1)]


def test_a_study_of_an_older_version_is_read(url: URL) -> None:
    with open_study(url, "old") as reader:
        assert [run.state for run in reader.read().runs] == ["waiting"] * 6


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("pair-tin", r"unknown study in sqlite:.* 'pair-tin': did you mean 'pair-tiny'\?"),
        ("empty", "the study empty holds no table and no search"),
    ],
)
def test_another_study_is_refused(url: URL, name: str, message: str) -> None:
    with pytest.raises(InputError, match=message), open_study(url, name) as reader:
        reader.read()


def test_no_database_is_made_where_there_is_none(tmp_path: Path) -> None:
    place = storage_url(f"sqlite:///{tmp_path / 'none.sqlite3'}", tmp_path)
    with pytest.raises(InputError, match="there is no database in"), open_study(place, "pair-tiny"):
        pass
    assert not list(tmp_path.iterdir())
