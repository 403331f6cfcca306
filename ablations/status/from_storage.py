"""How far a fleet is, by the study in its storage, for those who do not see its directory."""

from __future__ import annotations

import time
from dataclasses import replace
from typing import Any

import optuna
from optuna.trial import FrozenTrial, TrialState
from sqlalchemy.engine import URL

from ablations.fleet.queue import TABLE_ATTRIBUTE
from ablations.fleet.storage import STORAGE_ERRORS, Patience, open_storage, reason, refusing, show
from ablations.status.contents import contents_of
from ablations.status.ending import expect
from ablations.status.model import Run, State, Status
from experiments.attempt import Failure
from experiments.progress import Progress
from transformer.config import from_dict
from transformer.errors import InputError, unknown_name

_STATES: dict[TrialState, State] = {
    TrialState.COMPLETE: "done",
    TrialState.PRUNED: "pruned",
    TrialState.RUNNING: "running",
    TrialState.WAITING: "waiting",
    TrialState.FAIL: "failed",
}
# Of several trials of a cell, which one tells how it is.
_ORDER = tuple(_STATES)
_STOPPED = "stopped"


class StorageReader:
    """Reads a study again and again.

    Args:
        url: of the storage
        study: its name there

    Raises:
        InputError: if the storage cannot be used, or has no such study.
    """

    def __init__(self, url: URL, study: str) -> None:
        self._url, self._name = url, study
        self._storage = open_storage(url, Patience.of_environment())
        with refusing(url):
            names = optuna.study.get_all_study_names(self._storage)
        if study not in names:
            raise unknown_name(f"study in {show(url)}", study, names)

    def read(self) -> Status:
        """The status now.

        Raises:
            InputError: if the storage does not answer, or the study is no fleet's.
        """
        try:
            study = optuna.load_study(study_name=self._name, storage=self._storage)
            described = study.user_attrs.get(TABLE_ATTRIBUTE)
            trials = study.get_trials(deepcopy=False)
        except STORAGE_ERRORS as error:
            raise InputError(f"the storage {show(self._url)}: {reason(error)}") from None
        if not isinstance(described, dict):
            raise InputError(f"the study {self._name} holds no table and no search")
        contents = contents_of(described, f"the study {self._name}")
        by_cell: dict[str, list[FrozenTrial]] = {}
        for trial in trials:
            by_cell.setdefault(str(trial.user_attrs.get("cell")), []).append(trial)
        runs = [_run(name, by_cell.get(name, [])) for name in contents.cells]
        return expect(contents, runs, time.time())


def _run(name: str, trials: list[FrozenTrial]) -> Run:
    if not trials:
        return Run(name=name, state="waiting")
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
        progress=_progress(attributes.get("progress")),
        failures=tuple(map(_failure, filter(_is_failure, trials))),
    )
    if run.state == "failed" and not _is_failure(trial):
        return replace(run, state="stopped")
    if run.state == "done":
        return replace(run, **_figures(trial), progress=None, failures=run.failures)
    if run.state == "running":
        started = trial.datetime_start.timestamp() if trial.datetime_start else 0.0
        heard = run.progress.updated_at if run.progress else 0.0
        return replace(run, heard_at=max(started, heard))
    return run


def _figures(trial: FrozenTrial) -> dict[str, Any]:
    values = [*(trial.values or ()), None, None]
    seconds = trial.duration.total_seconds() if trial.duration else None
    # One that was imported from its files began and ended at once.
    return {"perplexity": values[0], "bleu": values[1], "seconds": seconds or None}


def _is_failure(trial: FrozenTrial) -> bool:
    return trial.state == TrialState.FAIL and "attempt" in trial.user_attrs and not _was_stopped(trial)


def _was_stopped(trial: FrozenTrial) -> bool:
    return trial.user_attrs.get("reason") == _STOPPED


def _failure(trial: FrozenTrial) -> Failure:
    attributes = trial.user_attrs
    return Failure(
        attempt=attributes["attempt"],
        reason=str(attributes.get("reason", "no reason was left")),
        lines=(),
        at=attributes.get("ended_at", 0.0),
    )


def _progress(value: Any) -> Progress | None:
    try:
        return from_dict(Progress, value) if isinstance(value, dict) else None
    except InputError:
        return None  # of another version; only a display depends on it
