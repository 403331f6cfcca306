"""A search as a set of runs for the workers."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Literal

from optuna import Trial
from optuna.pruners import BasePruner, HyperbandPruner, MedianPruner, NopPruner
from optuna.samplers import BaseSampler
from optuna.trial import FrozenTrial

from ablations.files import SEARCH_FILE
from ablations.runner.attempts import leave_pruned
from ablations.search.rungs import FACTOR
from ablations.search.sampler import DIRECTIONS, FeasibleSampler, to_optuna
from ablations.search.search import Search, load_search
from ablations.search.trials import (
    is_done,
    read_trial,
    read_trials,
    refuse_hopeless,
    write_best,
)
from experiments.run.experiment import Experiment
from experiments.run.results import valid_perplexities
from transformer.config import to_dict


class SearchRuns:
    """The trials of the search in ``root``; see :class:`ablations.runner.run_set.RunSet`.

    They are pruned on the validation perplexity by step, by default by Hyperband
    (https://arxiv.org/abs/1603.06560). Only the rungs that its trials have passed, and the state
    of CMA-ES, are not in files: with a new database they are lost.

    Raises:
        InputError: if ``root`` is not a search's directory.
    """

    directions: Sequence[Literal["minimize", "maximize"]] = DIRECTIONS
    metrics: Sequence[str] = ("validation perplexity",)

    def __init__(self, root: Path) -> None:
        self.root = root
        self._search, self._read_at = load_search(root), self._changed_at()
        self.sampler: BaseSampler = FeasibleSampler(self._search)
        self.pruner: BasePruner = _pruner(self._search)

    @property
    def search(self) -> Search:
        """The search as it is now: another process may have added trials."""
        changed_at = self._changed_at()
        if changed_at != self._read_at:
            self._search, self._read_at = load_search(self.root), changed_at
        return self._search

    @property
    def study(self) -> str:
        """The name of the Optuna study."""
        return self._search.study

    @property
    def title(self) -> str:
        """The title that users see."""
        return f"search {self._search.space} at scale {self._search.scale}"

    @property
    def names(self) -> Sequence[str]:
        """All trials, in the order in which to start them."""
        return self.search.names

    def describe(self) -> Mapping[str, Any]:
        """Describe the search as a JSON object."""
        return to_dict(self.search)

    def is_done(self, directory: Path) -> bool:
        """Whether a trial finished or was pruned."""
        return is_done(directory)

    def parameters(self, name: str) -> Mapping[str, Any]:
        """The values of a trial that has begun, or the base's for the first; else empty."""
        search = self.search
        found = read_trial(search, self.root, name).values
        return found or (search.first() if name == search.names[0] else {})

    def attributes(self, name: str) -> Mapping[str, Any]:
        """The trial's name alone, as its settings are parameters."""
        return {"cell": name}

    def experiment(self, name: str, trial: Trial) -> Experiment:
        """Sample the trial, given all that ended before.

        Raises:
            InputError: if no valid model is found, or no earlier trial had a finite perplexity.
        """
        search = self.search
        trials = read_trials(search, self.root)
        refuse_hopeless(search, trials)
        write_best(search, trials, self.root)
        values: dict[str, Any] = {}
        for each in search.parameters:
            if each.kind == "choice":
                values[each.name] = trial.suggest_categorical(each.name, each.choices)
            elif each.kind == "int":
                low, high = int(each.low), int(each.high)
                values[each.name] = trial.suggest_int(each.name, low, high, log=each.log)
            else:
                values[each.name] = trial.suggest_float(
                    each.name, each.low, each.high, log=each.log
                )
        return search.experiment(name, values)

    def finished_trial(self, name: str) -> FrozenTrial | None:
        """A trial that has ended, for a study that does not have it."""
        search = self.search
        return to_optuna(search, read_trial(search, self.root, name))

    def reports(self, directory: Path) -> Mapping[int, float]:
        """The validation perplexity by step, but for the last, after which nothing is saved."""
        last = self._search.base.training.max_steps
        found = valid_perplexities(directory)
        return {step: value for step, value in found.items() if step < last}

    def prune(self, directory: Path, step: int, value: float) -> None:
        """Record that the trial was pruned at ``step``."""
        leave_pruned(directory, step, value)

    def diverge(self, directory: Path, step: int) -> None:
        """Record that the trial diverged."""
        leave_pruned(directory, step, math.inf)

    def _changed_at(self) -> int:
        return (self.root / SEARCH_FILE).stat().st_mtime_ns


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
