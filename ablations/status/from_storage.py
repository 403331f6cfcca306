"""Read the status from the shared database, where the directory is not visible."""

from __future__ import annotations

import time
from collections.abc import Generator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

import optuna
from optuna.storages import RDBStorage
from optuna.trial import FrozenTrial, TrialState
from sqlalchemy.engine import URL

from ablations.runner.identity import is_gone
from ablations.runner.queue import description
from ablations.runner.storage import Heartbeat, open_storage, refuse_unusable
from ablations.runner.storage_url import display_url
from ablations.status.model import Run, Status
from ablations.status.planned import make_status, parse_planned
from experiments.run.attempt import Failure
from experiments.run.progress import RunState, parse_progress
from transformer.errors import InputError, unknown_name

# In this order: of several trials of a run, the first in it tells the run's state.
_STATES = {
    TrialState.COMPLETE: RunState.DONE,
    TrialState.PRUNED: RunState.PRUNED,
    TrialState.RUNNING: RunState.RUNNING,
    TrialState.WAITING: RunState.WAITING,
    TrialState.FAIL: RunState.FAILED,
}
_ORDER = tuple(_STATES)


@contextmanager
def open_study(url: URL, study: str) -> Generator[StorageReader]:
    """Open the database and yield a reader of the study of that name.

    Raises:
        InputError: if the storage cannot be used, or has no such study.
    """
    if url.get_backend_name() == "sqlite" and not Path(url.database or "").is_file():
        raise InputError(f"there is no database in {url.database}")  # SQLite would create it
    with open_storage(url, Heartbeat.from_environment()) as storage:
        with refuse_unusable(url):
            names = optuna.study.get_all_study_names(storage)
        yield StorageReader(url, storage, _find(study, names, url))


def _find(study: str, names: Sequence[str], url: URL) -> str:
    """The study of that name, or the only one that begins with it and a dash: users need to type
    ``table3-small`` only, not ``table3-small-1f9c``.
    """
    longer = [name for name in names if name.startswith(f"{study}-")]
    if study in names or len(longer) == 1:
        return study if study in names else longer[0]
    if longer:
        raise InputError(
            f"{display_url(url)} has several studies {study}: {', '.join(sorted(longer))}"
        )
    raise unknown_name(f"study in {display_url(url)}", study, names)


class StorageReader:
    """Reads the study ``name`` in ``storage``, which is at ``url``, repeatedly."""

    def __init__(self, url: URL, storage: RDBStorage, name: str) -> None:
        self._url, self._storage, self._name = url, storage, name

    def read(self) -> Status:
        """The status now.

        Raises:
            InputError: if the database does not answer, or the study is another program's.
        """
        with refuse_unusable(self._url):
            study = optuna.load_study(study_name=self._name, storage=self._storage)
            described = description(study)
            trials = study.get_trials(deepcopy=False)
        if described is None:
            raise InputError(f"the study {self._name} holds no table and no search")
        planned = parse_planned(described, f"the study {self._name}")
        by_cell: dict[str, list[FrozenTrial]] = {}
        for trial in trials:
            by_cell.setdefault(str(trial.user_attrs.get("cell")), []).append(trial)
        runs = [_run(name, by_cell.get(name, []), planned.measures) for name in planned.configs]
        return make_status(planned, runs, time.time())


def _run(name: str, trials: list[FrozenTrial], measures: Sequence[str]) -> Run:
    if not trials:
        return Run(name=name, state=RunState.WAITING)
    trial = min(trials, key=lambda trial: (_ORDER.index(trial.state), -trial.number))
    attributes = trial.user_attrs
    run = Run(
        name=name,
        state=_STATES[trial.state],
        attempt=attributes.get("attempt"),
        worker=attributes.get("worker"),
        host=attributes.get("host"),
        devices=tuple(attributes.get("devices", ())),
        ranks=attributes.get("ranks", 1),
        progress=parse_progress(attributes.get("progress") or {}),
        failures=tuple(map(_failure, filter(_is_failure, trials))),
    )
    if run.state == RunState.FAILED and trial.user_attrs.get("given_up"):
        return replace(run, state=RunState.GIVEN_UP)
    if run.state == RunState.FAILED and not _is_failure(trial):
        return replace(run, state=RunState.STOPPED)
    if run.state == RunState.DONE:
        seconds = trial.duration.total_seconds() if trial.duration else None
        # A trial that was imported from files began and ended at the same time.
        scores = dict(zip(measures, trial.values or (), strict=False))
        return replace(run, scores=scores, seconds=seconds or None, progress=None)
    if run.state == RunState.RUNNING and is_gone(run.worker or ""):
        return replace(run, state=RunState.STOPPED)
    if run.state == RunState.RUNNING:
        started = trial.datetime_start.timestamp() if trial.datetime_start else 0.0
        heard = run.progress.updated_at if run.progress else 0.0
        return replace(run, heard_at=max(started, heard))
    return run


def _is_failure(trial: FrozenTrial) -> bool:
    return trial.state == TrialState.FAIL and "given_up" in trial.user_attrs


def _failure(trial: FrozenTrial) -> Failure:
    attributes, ended = trial.user_attrs, trial.datetime_complete
    return Failure(
        attempt=attributes.get("attempt", 1),
        reason=str(attributes.get("reason", "no reason was left")),
        lines=tuple(attributes.get("lines", ())),
        at=0.0 if ended is None else ended.timestamp(),
    )
