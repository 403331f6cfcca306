"""The cells of a search: its trials, in order."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import optuna
from optuna.pruners import BasePruner, HyperbandPruner, MedianPruner, NopPruner
from optuna.storages import BaseStorage
from optuna.trial import FrozenTrial, TrialState, create_trial

from ablations.files import trial_name
from ablations.runs.attempts import Ended
from ablations.search.sampler import FeasibleSampler, distributions, to_optuna
from ablations.search.search import FACTOR, Search, load_search
from ablations.search.trials import (
    ended_trial,
    read_trial,
    read_trials,
    refuse_hopeless,
    write_best,
)
from experiments.records.experiment import Experiment
from experiments.records.progress import RunState

_ENDED = (TrialState.COMPLETE, TrialState.PRUNED)


class SearchCells:
    """The trials of the search in ``root``; see :class:`ablations.runs.study.Cells`.

    A trial's number in the study is that in its name. They are pruned on the validation perplexity
    by step, by default by Hyperband (https://arxiv.org/abs/1603.06560). Only the rungs that its
    trials have passed, and the state of CMA-ES, are not in files: with a new study they are lost.
    """

    is_search = True

    def __init__(self, root: Path) -> None:
        self.root = root
        self.search = load_search(root)
        self.names = self.search.names
        self.title = f"search {self.search.space} at scale {self.search.scale}"

    def create_study(self, storage: BaseStorage) -> optuna.Study:
        """The perplexity of the validation set is minimised."""
        study = optuna.create_study(
            storage=storage,
            sampler=FeasibleSampler(self.search),
            pruner=_pruner(self.search),
            study_name=self.search.name,
            load_if_exists=True,
        )
        study.set_metric_names(["validation perplexity"])
        return study

    def name_of(self, trial: FrozenTrial) -> str:
        """The trial's name by its number."""
        return trial_name(trial.number)

    def restore(self, known: Mapping[str, FrozenTrial]) -> list[FrozenTrial]:
        """All trials up to the last that has begun; what has not ended waits."""
        found = [self._restore(name, known.get(name)) for name in self.names]
        while found and found[-1] is None:
            found.pop()
        return [trial or create_trial(state=TrialState.WAITING) for trial in found]

    def _restore(self, name: str, known: FrozenTrial | None) -> FrozenTrial | None:
        trial = read_trial(self.search, self.root, name)
        ended = to_optuna(self.search, trial)
        if ended is not None:
            return known if known is not None and known.state in _ENDED else ended
        if trial.state == RunState.FAILED:
            if known is not None and known.state == TrialState.FAIL:
                return known
            return create_trial(state=TrialState.FAIL)
        if trial.values or known is not None:
            of_space = distributions(self.search)
            values = trial.values or (known.params if known is not None else {})
            return create_trial(
                state=TrialState.WAITING,
                params=dict(values),
                distributions={name: of_space[name] for name in values},
            )
        return None

    def ask(self, study: optuna.Study, name: str) -> optuna.Trial:
        """The next trial, sampled given all that ended before; the first is the base."""
        trials = read_trials(self.search, self.root)
        refuse_hopeless(self.search, trials)
        write_best(self.search, trials, self.root)
        first = self.search.first() if name == self.names[0] else {}
        if first and not study.get_trials(deepcopy=False):
            study.enqueue_trial(first)
        trial = study.ask(distributions(self.search))
        assert trial_name(trial.number) == name, f"trial {trial.number} is not {name}"
        return trial

    def experiment(self, name: str, trial: optuna.Trial) -> Experiment:
        """The trial's configuration."""
        return self.search.experiment(name, trial.params)

    def to_trial(self, name: str, ended: Ended) -> FrozenTrial | None:
        """A trial that finished, was pruned or diverged."""
        return to_optuna(self.search, ended_trial(name, ended))


def _pruner(search: Search) -> BasePruner:
    """Optuna's pruner that compares trials at the search's rungs alone."""
    rungs, training = search.rungs, search.base.training
    if not rungs:
        return NopPruner()
    if search.pruner == "median":
        return MedianPruner(n_warmup_steps=rungs[0])
    return HyperbandPruner(
        min_resource=rungs[0], max_resource=training.max_steps, reduction_factor=FACTOR
    )
