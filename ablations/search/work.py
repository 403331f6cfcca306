"""A search as something that a fleet works on."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Literal

from optuna import Trial
from optuna.pruners import BasePruner, HyperbandPruner
from optuna.samplers import BaseSampler
from optuna.trial import FrozenTrial

from ablations.runner.attempts import leave_pruned
from ablations.search.best import write_best
from ablations.search.report import announce_search, write_search_report
from ablations.search.sampler import FeasibleSampler
from ablations.search.search import SEARCH_FILE, Search, load_search
from ablations.search.study import DIRECTIONS, to_optuna
from ablations.search.trials import (
    is_done,
    read_trial,
    read_trials,
    refuse_hopeless,
)
from experiments.run.experiment import Experiment
from experiments.run.results import valid_perplexities
from transformer.config import to_dict


class SearchWork:
    """The search that ``search.json`` in ``root`` describes; see ``ablations.runner.work.Work``.

    Pruned by Hyperband (https://arxiv.org/abs/1603.06560) on the perplexity of the validation set
    by step. What Optuna knows beside the files, the rungs that trials have passed, begins anew
    with a new database.

    Raises:
        InputError: if ``root`` is not a search's directory.
    """

    directions: Sequence[Literal["minimize", "maximize"]] = DIRECTIONS

    def __init__(self, root: Path) -> None:
        self.root = root
        self._search, self._read_at = load_search(root), self._changed_at()
        training = self._search.base.training
        self.sampler: BaseSampler = FeasibleSampler(self._search)
        self.pruner: BasePruner = HyperbandPruner(
            min_resource=training.validate_every_steps,
            max_resource=training.max_steps,
            reduction_factor=3,
        )

    @property
    def search(self) -> Search:
        """As it stands: another call may have extended it by more trials."""
        changed_at = self._changed_at()
        if changed_at != self._read_at:
            self._search, self._read_at = load_search(self.root), changed_at
        return self._search

    @property
    def study(self) -> str:
        """The study's name."""
        return self._search.study

    @property
    def title(self) -> str:
        """What a person is told it is."""
        return f"search {self._search.space} at scale {self._search.scale}"

    @property
    def names(self) -> Sequence[str]:
        """All trials in their order."""
        return self.search.names

    def describe(self) -> Mapping[str, Any]:
        """The search as an object of JSON."""
        return to_dict(self.search)

    def is_done(self, directory: Path) -> bool:
        """Whether a trial has finished or was pruned."""
        return is_done(directory)

    def parameters(self, name: str) -> Mapping[str, Any]:
        """What was sampled for a trial that was begun; the base's for the first; else nothing."""
        search = self.search
        found = read_trial(search, self.root, name).values
        return found or (search.first() if name == search.names[0] else {})

    def experiment(self, name: str, trial: Trial) -> Experiment:
        """Sample the trial, knowing all that ended before.

        Raises:
            InputError: if no model of the space may be trained, or nothing comes of any.
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
        """A trial that has ended, for a study that has forgotten it."""
        search = self.search
        return to_optuna(search, read_trial(search, self.root, name))

    def reports(self, directory: Path) -> Mapping[int, float]:
        """Perplexity of the validation set by step."""
        return valid_perplexities(directory)

    def prune(self, directory: Path, step: int, value: float) -> None:
        """Leave that the trial was ended at ``step``."""
        leave_pruned(directory, step, value)

    def diverge(self, directory: Path, step: int) -> None:
        """Leave that the trial was no good at all."""
        leave_pruned(directory, step, math.inf)

    def write_report(self) -> None:
        """The report, and ``best.json``."""
        search = self.search
        write_best(search, read_trials(search, self.root), self.root)
        write_search_report(self.root)

    def announce(self) -> None:
        """Print the report.

        Raises:
            InputError: if no trial had a finite perplexity.
        """
        search = self.search
        announce_search(write_search_report(self.root), self.root)
        refuse_hopeless(search, read_trials(search, self.root))

    def _changed_at(self) -> int:
        return (self.root / SEARCH_FILE).stat().st_mtime_ns
