"""A search's trials in Optuna."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import isfinite
from pathlib import Path
from typing import Any

import optuna
from optuna.importance import PedAnovaImportanceEvaluator, get_param_importances
from optuna.pruners import BasePruner, HyperbandPruner, MedianPruner, NopPruner
from optuna.storages import BaseStorage
from optuna.trial import FrozenTrial, TrialState, create_trial

from ablations.files import STUDY_FILE
from ablations.folder import SearchFolder
from ablations.runs.sampler import FeasibleSampler, always_used, distributions, suggest, used
from ablations.search.search import FACTOR, Search, trial_name
from ablations.search.trials import SearchTrial, check_any_finite, count_best, ended_trial, ranked
from experiments.records.experiment import CONFIG_FILE, Experiment
from experiments.records.progress import RunState
from experiments.records.run import Run
from transformer.errors import InputError


class SearchRuns:
    """The trials of the search in ``root``, as :class:`ablations.runs.study.PlannedRuns`.

    They minimise the perplexity of the validation set and are pruned by it, with Hyperband by
    default (https://arxiv.org/abs/1603.06560). The rungs that a trial passed are only in Optuna's
    journal: if it is lost, a new study lacks them.
    """

    prunes = True

    def __init__(self, root: Path) -> None:
        self.root, self.folder = root, SearchFolder(root)
        self.search = self.folder.plan
        self._sampler = FeasibleSampler(self.search)
        self.names = self.search.names
        self.title = self.folder.title

    def shares(self, _name: str, /) -> tuple[str, ...]:
        """No others: a trial may be pruned, so it needs a training of its own."""
        return ()

    def has_training(self, _name: str, /) -> bool:
        return False

    def checkpoints(self, _name: str, /) -> int:
        return 1

    def create_study(self, storage: BaseStorage) -> optuna.Study:
        study = optuna.create_study(
            storage=storage,
            sampler=self._sampler,
            pruner=_pruner(self.search),
            study_name=self.search.name,
            load_if_exists=True,
        )
        study.set_metric_names(["validation perplexity"])
        return study

    def restore(self, known: Sequence[FrozenTrial]) -> list[FrozenTrial]:
        """All trials up to the last that has begun, at least the base; unfinished ones wait."""
        by_name = {trial_name(trial.number): trial for trial in known}
        found = [self._restore(name, by_name.get(name)) for name in self.names]
        while found and found[-1] is None:
            found.pop()
        return [trial or create_trial(state=TrialState.WAITING) for trial in found]

    def _restore(self, name: str, known: FrozenTrial | None) -> FrozenTrial | None:
        run, trial = self.folder.read(name), self.folder.trial(name)
        found, has_ended = to_optuna(self.search, trial), run.has_ended
        # A trial that ended, but that a killed driver did not publish, waits to be published.
        if found is not None and has_ended:
            if known is not None:
                found.system_attrs = _of_journal(known, trial.curve)
            return found
        values = dict(trial.values)
        if name == self.names[0]:
            values = values or self.search.first()
        values = values or self._known_values(known)
        if trial.state == RunState.FAILED:
            if run.is_given_up or has_ended:
                return create_trial(state=TrialState.FAIL)
            if not values:
                raise InputError(
                    f"the settings of {name} are lost, as {run.directory / CONFIG_FILE} cannot be "
                    f"read and {STUDY_FILE} does not have them: remove {run.directory}"
                )
        if not values and known is None:
            return None
        of_space = {
            name: kind for name, kind in distributions(self.search).items() if name in values
        }
        return create_trial(state=TrialState.WAITING, params=values, distributions=of_space)

    def _known_values(self, known: FrozenTrial | None) -> dict[str, Any]:
        """The values of a trial in the journal; empty if they are not in the space."""
        values = {} if known is None else dict(known.params)
        try:
            if values.keys() != used(self.search, values).keys():
                return {}
            return values if self.search.contains(self.search.configure(values)) else {}
        except InputError:
            return {}

    def ask(self, study: optuna.Study, name: str) -> optuna.Trial:
        known = study.get_trials(deepcopy=False)
        self._sampler.tried = [trial.params for trial in known]
        if not any(trial.value is not None and isfinite(trial.value) for trial in known):
            check_any_finite(self.search, self.folder.trials())
        trial = study.ask(always_used(self.search))
        for option, distribution in used(self.search, trial.params).items():
            if option not in trial.params:
                suggest(trial, option, distribution)
        assert trial_name(trial.number) == name, f"trial {trial.number} is not {name}"
        return trial

    def experiment(self, name: str, trial: optuna.Trial) -> Experiment:
        return self.search.experiment(name, trial.params)

    def to_trial(self, run: Run) -> FrozenTrial | None:
        return to_optuna(self.search, ended_trial(run))


def _of_journal(known: FrozenTrial, curve: Mapping[int, float]) -> dict[str, Any]:
    """The rungs that an ended trial passed, which only the journal has, without those whose value
    is not in its ``curve``.
    """
    found = known.system_attrs.items()
    rungs = {name: value for name, value in found if name.startswith("completed_rung")}
    return {name: value for name, value in rungs.items() if value in curve.values()}


def _pruner(search: Search) -> BasePruner:
    rungs, last = search.rungs, search.base.training.max_steps
    if not rungs:
        return NopPruner()
    if search.pruner == "median":
        return MedianPruner(n_warmup_steps=rungs[0])
    return HyperbandPruner(min_resource=rungs[0], max_resource=last, reduction_factor=FACTOR)


def to_optuna(search: Search, trial: SearchTrial) -> FrozenTrial | None:
    """The trial as one of Optuna's; None unless it is done, pruned or diverged.

    A diverged trial becomes a pruned one, so that the sampler avoids its values.
    """
    if trial.state not in (RunState.DONE, RunState.PRUNED, RunState.DIVERGED):
        return None
    of_space = distributions(search)
    return create_trial(
        state=TrialState.COMPLETE if trial.state == RunState.DONE else TrialState.PRUNED,
        value=trial.perplexity,
        params=dict(trial.values),
        distributions={name: of_space[name] for name in trial.values},
        intermediate_values=dict(trial.curve),
    )


def importances(search: Search, trials: Sequence[SearchTrial]) -> dict[str, float]:
    """How much each hyperparameter decides whether a trial is among the best quarter, in shares
    that add up to 1, the largest first: PED-ANOVA (https://arxiv.org/abs/2304.10255) over the ranks
    of the trials. Options are left out, as not all trials have them. Empty if too many trials have
    about the same perplexity.
    """
    ended = ranked(trials)
    count = count_best(ended)
    if not count:
        return {}
    optuna.logging.set_verbosity(optuna.logging.ERROR)
    study = optuna.create_study()
    of_space = always_used(search)
    for place, trial in enumerate(ended):
        values = {name: trial.values[name] for name in of_space}
        study.add_trial(create_trial(value=place, params=values, distributions=of_space))
    evaluator = PedAnovaImportanceEvaluator(target_quantile=(count - 0.5) / len(ended))
    return get_param_importances(study, evaluator=evaluator)
