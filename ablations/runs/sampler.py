"""Sample the trials of a search with Optuna."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from typing import Any

import optuna
from optuna import Study
from optuna.distributions import (
    BaseDistribution,
    CategoricalDistribution,
    FloatDistribution,
    IntDistribution,
)
from optuna.samplers import BaseSampler, RandomSampler, TPESampler
from optuna.trial import FrozenTrial

from ablations.search.search import Search
from ablations.tables.changes import is_option
from transformer.errors import InputError

# Random trials before TPE, in each bracket of Hyperband: Optuna's ten would be most of a search.
_STARTUP_TRIALS = 5
_MODEL_DRAWS = 20
_EVEN_DRAWS = 1_000


def distributions(search: Search) -> dict[str, BaseDistribution]:
    """The hyperparameters of ``search`` as Optuna's distributions."""
    found: dict[str, BaseDistribution] = {}
    for each in search.parameters:
        if each.kind == "choice":
            found[each.name] = CategoricalDistribution(each.choices)
        elif each.kind == "int":
            found[each.name] = IntDistribution(int(each.low), int(each.high), log=each.log)
        else:
            found[each.name] = FloatDistribution(each.low, each.high, log=each.log)
    return found


def used(search: Search, values: Mapping[str, Any]) -> dict[str, BaseDistribution]:
    """The hyperparameters that a model with these ``values`` has."""
    names = {each.name for each in search.parameters if search.is_used(each, values)}
    return {name: x for name, x in distributions(search).items() if name in names}


def always_used(search: Search) -> dict[str, BaseDistribution]:
    """The hyperparameters that every model has: all but the options of classes."""
    return {name: x for name, x in distributions(search).items() if not is_option(name)}


def suggest(trial: optuna.Trial, name: str, distribution: BaseDistribution) -> None:
    """Let the sampler choose one more hyperparameter of a trial."""
    if isinstance(distribution, CategoricalDistribution):
        trial.suggest_categorical(name, distribution.choices)
    elif isinstance(distribution, IntDistribution):
        trial.suggest_int(name, distribution.low, distribution.high, log=distribution.log)
    elif isinstance(distribution, FloatDistribution):
        trial.suggest_float(name, distribution.low, distribution.high, log=distribution.log)


class FeasibleSampler(RandomSampler):
    """Samples all values of a trial together until they make a valid model within the budget.

    The search's sampler draws them; while there are few trials, or if it finds no such model, they
    are drawn uniformly. Random numbers depend only on the seed and the trial's number. Values in
    ``tried`` are not repeated, since a repeat would give identical numbers, until a small space is
    exhausted.
    """

    tried: Sequence[Mapping[str, Any]] = ()

    def __init__(self, search: Search) -> None:
        super().__init__()
        self._search = search

    def infer_relative_search_space(
        self, study: Study, trial: FrozenTrial
    ) -> dict[str, BaseDistribution]:
        return distributions(self._search)

    def sample_relative(
        self, study: Study, trial: FrozenTrial, search_space: dict[str, BaseDistribution]
    ) -> dict[str, Any]:
        digest = hashlib.sha256(f"{self._search.base.training.seed}/{trial.number}".encode())
        seed = int.from_bytes(digest.digest()[:4], "big")
        uniform = RandomSampler(seed=seed)
        model: BaseSampler = uniform  # it samples without regard to other trials
        if self._search.sampler == "tpe":
            model = TPESampler(
                seed=seed, multivariate=True, constant_liar=True, n_startup_trials=_STARTUP_TRIALS
            )
        shared = {name: x for name, x in search_space.items() if not is_option(name)}
        again: dict[str, Any] = {}
        for draw in range(_MODEL_DRAWS + _EVEN_DRAWS):
            chooser = model if draw < _MODEL_DRAWS else uniform
            values = chooser.sample_relative(study, trial, shared)  # none if it is uniform
            values |= {
                name: uniform.sample_independent(study, trial, name, distribution)
                for name, distribution in shared.items()
                if name not in values
            }
            # Only some trials have an option, so each is drawn independently.
            for name, distribution in used(self._search, values).items():
                if name not in values:
                    values[name] = chooser.sample_independent(study, trial, name, distribution)
            if self._search.is_feasible(values):
                if values not in self.tried:
                    return values
                again = values
        if again:
            return again
        budget = self._search.max_parameters
        what = "" if budget is None else f" of at most {budget:,} parameters"
        raise InputError(
            f"no model{what} among {_EVEN_DRAWS:,} drawn from space {self._search.space!r} at "
            f"scale {self._search.scale!r}: add smaller sizes to the space, or raise its budget"
        )


def check_feasible(search: Search) -> None:
    """Check that the space has a valid model within the budget."""
    optuna.logging.set_verbosity(optuna.logging.ERROR)
    optuna.create_study(sampler=FeasibleSampler(search)).ask(always_used(search))
