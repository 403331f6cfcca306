"""The queue of a fleet: an Optuna study in which each attempt at a cell is one trial.

The files are the truth. Whoever holds the lease makes the study agree with them, so deleting it
loses nothing.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any, Literal

import optuna
from optuna.exceptions import ExperimentalWarning, UpdateFinishedTrialError
from optuna.storages import RDBStorage, fail_stale_trials
from optuna.trial import FrozenTrial, TrialState

from ablations.runner.attempts import newest
from ablations.runner.identity import host_of, is_gone
from ablations.runner.work import Work
from experiments.run.attempt import read_attempt
from experiments.run.experiment import Experiment

TABLE_ATTRIBUTE = "table"
_LIVE = (TrialState.WAITING, TrialState.RUNNING)
_ENDED = (TrialState.COMPLETE, TrialState.PRUNED)
Kind = Literal["done", "failed", "released"]


@dataclass(frozen=True, eq=False, slots=True)
class Claim:
    """A cell that this worker has taken: its trial is its own as long as it is running."""

    name: str
    experiment: Experiment
    trial: optuna.Trial


class Queue:
    """The cells that wait, run or have ended, as one worker sees them.

    A cell is kept in a trial's attributes and not in its parameters: a categorical parameter
    could not grow by the rows of a later call.

    Args:
        storage: see :func:`ablations.runner.storage.open_storage`
        work: whose cells these are
        worker: who asks, see :mod:`ablations.runner.identity`
    """

    def __init__(self, storage: RDBStorage, work: Work, worker: str) -> None:
        warnings.filterwarnings("ignore", category=ExperimentalWarning)
        self._storage, self._work, self._worker = storage, work, worker
        self._done: set[str] = set()
        self._told: dict[int, int] = {}
        self._described: Mapping[str, Any] = {}
        optuna.create_study(
            storage=storage,
            study_name=work.study,
            directions=list(work.directions),
            load_if_exists=True,
        )

    # What the holder of the lease does.

    def reconcile(self, *, judge: bool, still_leads: Callable[[], bool]) -> None:
        """Make the study agree with the files, and queue what is missing.

        Args:
            judge: whether trials whose worker was silent for the grace are given up; not so
                early after this worker has lost sight of the storage, when all seem silent
            still_leads: asked before anything is added
        """
        study = self._study()
        if judge:
            fail_stale_trials(study)
        described = self._work.describe()
        if described != self._described:
            study.set_user_attr(TABLE_ATTRIBUTE, described)
            self._described = described
        live: set[str] = set()
        ended: set[str] = set()
        names = set(self._work.names)
        ours = [trial for trial in study.get_trials(deepcopy=False) if _cell(trial) in names]
        for trial in sorted(ours, key=lambda trial: trial.state != TrialState.RUNNING):
            state = self._settle(study, trial, live)
            if state in _LIVE:
                live.add(_cell(trial))
            elif state in _ENDED:
                ended.add(_cell(trial))
        for name in self._work.names:
            if self.is_done(name):
                if name not in live | ended and still_leads():
                    self._import(study, name)
            elif name not in live and not self.is_given_up(name) and still_leads():
                attributes = {"cell": name}
                study.enqueue_trial(dict(self._work.parameters(name)), user_attrs=attributes)

    def _settle(self, study: optuna.Study, trial: FrozenTrial, live: set[str]) -> TrialState:
        """Close a trial that waits or runs without reason; the state that it has then."""
        name, is_done = _cell(trial), self.is_done(_cell(trial))
        if trial.state == TrialState.RUNNING and is_gone(trial.user_attrs.get("worker", "")):
            if is_done:
                return self._tell_done(study, trial._trial_id, name)
            return self._tell_failed(study, trial._trial_id, "its worker died")
        unwanted = trial.state == TrialState.WAITING and (name in live or is_done)
        if unwanted and self._claim(trial._trial_id):
            return self._tell_failed(study, trial._trial_id, "no longer wanted")
        return trial.state

    def _import(self, study: optuna.Study, name: str) -> None:
        trial = self._work.finished_trial(name)
        if trial is not None:
            study.add_trial(trial)

    # What every worker does.

    def take(self, wanted: Callable[[str], bool]) -> Claim | None:
        """The next cell to run, from now on this worker's; None when none that is wanted waits."""
        study = self._study()
        trials = study.get_trials(deepcopy=False, states=_LIVE)
        waiting = {_cell(trial): trial for trial in trials if trial.state == TrialState.WAITING}
        running = {_cell(trial) for trial in trials if trial.state == TrialState.RUNNING}
        for name in self._work.names:
            trial = waiting.get(name)
            if trial is None or name in running or not wanted(name) or self.is_done(name):
                continue
            if not self._claim(trial._trial_id):
                continue
            ours = optuna.Trial(study, trial._trial_id)
            ours.set_user_attr("worker", self._worker)
            ours.set_user_attr("host", host_of(self._worker))
            experiment = self._work.experiment(name, ours)
            if experiment is not None:
                return Claim(name, experiment, ours)
            self._tell_done(study, trial._trial_id, name)
        return None

    def beat(self, claim: Claim, attributes: Mapping[str, Any]) -> bool:
        """Say that a cell of this worker's is being worked on, and how; False if another has
        taken it over.
        """
        self._storage.record_heartbeat(claim.trial._trial_id)
        try:
            for name, value in attributes.items():
                claim.trial.set_user_attr(name, value)
        except UpdateFinishedTrialError:
            return False
        return True

    def should_prune(self, claim: Claim, reports: Mapping[int, float]) -> bool:
        """Tell Optuna what a run has reported by global step; whether it is to end for that.

        Optuna is asked at each step, as it compares runs where they were at the same one.
        """
        told = self._told.get(claim.trial.number, -1)
        try:
            for step in sorted(step for step in reports if step > told):
                claim.trial.report(reports[step], step)
                self._told[claim.trial.number] = step
                if claim.trial.should_prune():
                    return True
        except UpdateFinishedTrialError:
            return False
        return False

    def close(
        self, claim: Claim, kind: Kind, reason: str = "", facts: Mapping[str, Any] | None = None
    ) -> None:
        """Say how a cell of this worker's ended; nothing, if another has taken it over.

        Args:
            kind: done as its files say; failed with an exception; or released for another attempt
            reason: why it is not done
            facts: what more to keep of that
        """
        study, trial_id = self._study(), claim.trial._trial_id
        if kind == "done":
            self._tell_done(study, trial_id, claim.name)
        else:
            self._tell_failed(study, trial_id, reason, facts or {})

    def is_done(self, name: str) -> bool:
        """Whether a cell has come to its end."""
        if name not in self._done and self._work.is_done(self._work.root / name):
            self._done.add(name)
        return name in self._done

    def is_given_up(self, name: str) -> bool:
        """Whether a cell has failed so often that it is not tried again."""
        directory = newest(self._work.root / name)
        attempt = read_attempt(directory) if directory else None
        return attempt is not None and attempt.given_up

    def is_open(self, name: str) -> bool:
        """Whether a cell is still to come to an end of either kind."""
        return not self.is_done(name) and not self.is_given_up(name)

    def _study(self) -> optuna.Study:
        """A new view each time: Optuna's caches what others have told meanwhile."""
        work = self._work
        return optuna.Study(work.study, self._storage, sampler=work.sampler, pruner=work.pruner)

    def _claim(self, trial_id: int) -> bool:
        """Take a waiting trial; one worker can. It has a heartbeat before it runs: Optuna takes
        a running trial without one for a live one for ever.
        """
        self._storage.record_heartbeat(trial_id)
        try:
            return self._storage.set_trial_state_values(trial_id, TrialState.RUNNING)
        except UpdateFinishedTrialError:
            return False

    def _tell_done(self, study: optuna.Study, trial_id: int, name: str) -> TrialState:
        done = self._work.finished_trial(name)
        if done is None:
            return self._tell_failed(study, trial_id, "its figures are not finite")
        number = self._storage.get_trial_number_from_id(trial_id)
        if done.state == TrialState.PRUNED:
            # All that the run came to before it ended: Optuna takes the last as its value.
            with suppress(UpdateFinishedTrialError):
                for step, value in done.intermediate_values.items():
                    self._storage.set_trial_intermediate_value(trial_id, step, value)
            return study.tell(number, state=TrialState.PRUNED, skip_if_finished=True).state
        return study.tell(number, done.values, skip_if_finished=True).state

    def _tell_failed(
        self,
        study: optuna.Study,
        trial_id: int,
        reason: str,
        facts: Mapping[str, Any] = MappingProxyType({}),
    ) -> TrialState:
        with suppress(UpdateFinishedTrialError):
            for key, value in {"reason": reason, **facts}.items():
                self._storage.set_trial_user_attr(trial_id, key, value)
        number = self._storage.get_trial_number_from_id(trial_id)
        return study.tell(number, state=TrialState.FAIL, skip_if_finished=True).state


def _cell(trial: FrozenTrial) -> str:
    return str(trial.user_attrs.get("cell", ""))
