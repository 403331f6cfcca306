"""The queue of runs: an Optuna study in which each attempt at a run is one trial.

The files decide. Whoever holds the lease makes the study agree with them, so the study can be
deleted at any time.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any

import optuna
from optuna.exceptions import ExperimentalWarning, UpdateFinishedTrialError
from optuna.storages import RDBStorage, fail_stale_trials
from optuna.trial import FrozenTrial, TrialState

from ablations.runner.attempts import newest
from ablations.runner.identity import host_of, is_gone
from ablations.runner.run_set import RunSet
from experiments.run.attempt import read_attempt
from experiments.run.experiment import Experiment

# What the study holds, for readers of the database alone, among the attributes that
# optuna-dashboard does not show; older studies have it as the user attribute "table".
DESCRIPTION = "ablations:description"
_LIVE = (TrialState.WAITING, TrialState.RUNNING)
_ENDED = (TrialState.COMPLETE, TrialState.PRUNED)


def description(study: optuna.Study) -> Mapping[str, Any] | None:
    """What :meth:`RunSet.describe` told of a study; None if it is another program's."""
    found = study._storage.get_study_system_attrs(study._study_id).get(DESCRIPTION)
    found = found or study.user_attrs.get("table")
    return found if isinstance(found, dict) else None


@dataclass(frozen=True, eq=False, slots=True)
class Claim:
    """A run that this worker has claimed; it stays this worker's while its trial is running."""

    name: str
    experiment: Experiment
    trial: optuna.Trial


class Queue:
    """The runs that wait, are in progress or have ended, as one worker sees them.

    A run's name is stored in a trial's attributes, not in its parameters: the choices of a
    categorical parameter could not grow by the rows of a later call.

    Args:
        storage: from :func:`ablations.runner.storage.open_storage`
        run_set: the table or search
        worker: this worker's name, see :mod:`ablations.runner.identity`
    """

    def __init__(self, storage: RDBStorage, run_set: RunSet, worker: str) -> None:
        warnings.filterwarnings("ignore", category=ExperimentalWarning)
        self._storage, self._run_set, self._worker = storage, run_set, worker
        self._done: set[str] = set()
        self._reported_steps: dict[int, int] = {}
        self._described: Mapping[str, Any] = {}
        optuna.create_study(
            storage=storage,
            study_name=run_set.study,
            directions=list(run_set.directions),
            load_if_exists=True,
        )

    # For the holder of the lease.

    def reconcile(self, *, judge: bool, may_continue: Callable[[], bool]) -> bool:
        """Make the study agree with the files, and queue what is missing.

        Args:
            judge: whether to fail trials whose worker was silent for the grace period; not soon
                after this worker lost contact with the storage, when everybody seems silent
            may_continue: asked before anything is added

        Returns:
            Whether nothing is left to do.
        """
        study = self._study()
        if judge:
            fail_stale_trials(study)
        described = self._run_set.describe()
        if described != self._described:
            self._storage.set_study_system_attr(study._study_id, DESCRIPTION, described)
            study.set_user_attr("table", self._run_set.title)
            study.set_metric_names(list(self._run_set.metrics))
            self._described = described
        live: set[str] = set()
        ended: set[str] = set()
        names = set(self._run_set.names)
        ours = [trial for trial in study.get_trials(deepcopy=False) if _name(trial) in names]
        for trial in sorted(ours, key=lambda trial: trial.state != TrialState.RUNNING):
            state = self._settle(study, trial, live)
            if state in _LIVE:
                live.add(_name(trial))
            elif state in _ENDED:
                ended.add(_name(trial))
        for name in self._run_set.names:
            done = self.is_done(name)
            if name in live or (name in ended if done else self.is_given_up(name)):
                continue
            if not may_continue():
                return False
            if not done:
                parameters = dict(self._run_set.parameters(name))
                study.enqueue_trial(parameters, user_attrs=dict(self._run_set.attributes(name)))
            elif trial := self._run_set.finished_trial(name):
                study.add_trial(trial)
        return True

    def _settle(self, study: optuna.Study, trial: FrozenTrial, live: set[str]) -> TrialState:
        """Close a trial that waits or runs without a reason, and return its state then."""
        name, is_done = _name(trial), self.is_done(_name(trial))
        if trial.state == TrialState.RUNNING and is_gone(trial.user_attrs.get("worker", "")):
            if is_done:
                return self._complete(study, trial._trial_id, name)
            return self._fail(study, trial._trial_id, "its worker died")
        unwanted = trial.state == TrialState.WAITING and (name in live or is_done)
        if unwanted and self._claim(trial._trial_id):
            return self._fail(study, trial._trial_id, "no longer wanted")
        return trial.state

    # For every worker.

    def take(self, wanted: Callable[[str], bool]) -> Claim | None:
        """Claim the next run; None if none that is wanted waits."""
        study = self._study()
        trials = study.get_trials(deepcopy=False, states=_LIVE)
        waiting = {_name(trial): trial for trial in trials if trial.state == TrialState.WAITING}
        running = {_name(trial) for trial in trials if trial.state == TrialState.RUNNING}
        for name in self._run_set.names:
            trial = waiting.get(name)
            if trial is None or name in running or not wanted(name) or self.is_done(name):
                continue
            if not self._claim(trial._trial_id):
                continue
            ours = optuna.Trial(study, trial._trial_id)
            ours.set_user_attr("worker", self._worker)
            ours.set_user_attr("host", host_of(self._worker))
            experiment = self._run_set.experiment(name, ours)
            if experiment is not None:
                return Claim(name, experiment, ours)
            self._complete(study, trial._trial_id, name)
        return None

    def beat(self, claim: Claim, attributes: Mapping[str, Any]) -> bool:
        """Report that a claimed run is alive, and how it fares; False if it was taken over."""
        self._storage.record_heartbeat(claim.trial._trial_id)
        try:
            for name, value in attributes.items():
                claim.trial.set_user_attr(name, value)
        except UpdateFinishedTrialError:
            return False
        return True

    def should_prune(self, claim: Claim, reports: Mapping[int, float]) -> bool:
        """Report intermediate values by step, and ask Optuna whether to end the run.

        Optuna is asked at each step, as it compares runs at the same step.
        """
        last = self._reported_steps.get(claim.trial.number, -1)
        try:
            for step in sorted(step for step in reports if step > last):
                claim.trial.report(reports[step], step)
                self._reported_steps[claim.trial.number] = step
                if claim.trial.should_prune():
                    return True
        except UpdateFinishedTrialError:
            return False
        return False

    def complete(self, claim: Claim) -> None:
        """Report that a run is done as its files say, unless another worker has taken it over."""
        self._complete(self._study(), claim.trial._trial_id, claim.name)

    def fail(
        self, claim: Claim, reason: str, attributes: Mapping[str, Any] = MappingProxyType({})
    ) -> None:
        """Report why an attempt ended without a result, unless another worker took the run over."""
        self._fail(self._study(), claim.trial._trial_id, reason, attributes)

    def is_done(self, name: str) -> bool:
        """Whether a run has ended for good."""
        if name not in self._done and self._run_set.is_done(self._run_set.root / name):
            self._done.add(name)
        return name in self._done

    def is_given_up(self, name: str) -> bool:
        """Whether a run has failed so often that it is not tried again."""
        directory = newest(self._run_set.root / name)
        attempt = read_attempt(directory) if directory else None
        return attempt is not None and attempt.given_up

    def _study(self) -> optuna.Study:
        """A new view each time, because Optuna caches what others may have changed."""
        runs = self._run_set
        return optuna.Study(runs.study, self._storage, sampler=runs.sampler, pruner=runs.pruner)

    def _claim(self, trial_id: int) -> bool:
        """Set a waiting trial to running, which one worker can do.

        The heartbeat comes first: Optuna never considers a running trial without one stale.
        """
        self._storage.record_heartbeat(trial_id)
        try:
            return self._storage.set_trial_state_values(trial_id, TrialState.RUNNING)
        except UpdateFinishedTrialError:
            return False

    def _complete(self, study: optuna.Study, trial_id: int, name: str) -> TrialState:
        done = self._run_set.finished_trial(name)
        if done is None:
            return self._fail(study, trial_id, "its figures are not finite")
        number = self._storage.get_trial_number_from_id(trial_id)
        # Including the values since the last report: later trials are compared with them, and of a
        # pruned one Optuna takes the last as the result.
        with suppress(UpdateFinishedTrialError):
            for step, value in done.intermediate_values.items():
                self._storage.set_trial_intermediate_value(trial_id, step, value)
        if done.state == TrialState.PRUNED:
            return study.tell(number, state=TrialState.PRUNED, skip_if_finished=True).state
        return study.tell(number, done.values, skip_if_finished=True).state

    def _fail(
        self,
        study: optuna.Study,
        trial_id: int,
        reason: str,
        attributes: Mapping[str, Any] = MappingProxyType({}),
    ) -> TrialState:
        with suppress(UpdateFinishedTrialError):
            for key, value in {"reason": reason, **attributes}.items():
                self._storage.set_trial_user_attr(trial_id, key, value)
        number = self._storage.get_trial_number_from_id(trial_id)
        return study.tell(number, state=TrialState.FAIL, skip_if_finished=True).state


def _name(trial: FrozenTrial) -> str:
    return str(trial.user_attrs.get("cell", ""))
