"""What a trial is given: Optuna's TPE, within what models can be and what they may cost."""

from __future__ import annotations

import hashlib
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
from transformer.errors import InputError

# Each of Hyperband's brackets has a model of its own, so ten each would be most of a search.
_STARTUP_TRIALS = 5
_MODEL_DRAWS = 20
_EVEN_DRAWS = 1_000


def distributions(search: Search) -> dict[str, BaseDistribution]:
    """Optuna's name for the parameters of ``search``."""
    found: dict[str, BaseDistribution] = {}
    for each in search.parameters:
        if each.kind == "choice":
            found[each.name] = CategoricalDistribution(each.choices)
        elif each.kind == "int":
            found[each.name] = IntDistribution(int(each.low), int(each.high), log=each.log)
        else:
            found[each.name] = FloatDistribution(each.low, each.high, log=each.log)
    return found


class FeasibleSampler(BaseSampler):
    """Draws all parameters of a trial at once, again and again until such a model may be trained:
    first by TPE, and where that fails, or knows too few trials as yet, evenly.

    So no trial is spent on what cannot be. Random numbers depend on the seed and the number of
    the trial alone, whichever worker draws them.
    """

    def __init__(self, search: Search) -> None:
        self._search = search

    def infer_relative_search_space(
        self, study: Study, trial: FrozenTrial
    ) -> dict[str, BaseDistribution]:
        """All parameters, in each trial the same."""
        return distributions(self._search)

    def sample_relative(
        self, study: Study, trial: FrozenTrial, search_space: dict[str, BaseDistribution]
    ) -> dict[str, Any]:
        """Values of all parameters.

        Raises:
            InputError: if next to none of the space may be trained.
        """
        seed = _seed(self._search.base.training.seed, trial.number)
        tpe = TPESampler(
            seed=seed, multivariate=True, constant_liar=True, n_startup_trials=_STARTUP_TRIALS
        )
        for _ in range(_MODEL_DRAWS):
            values = tpe.sample_relative(study, trial, search_space)
            if not values:
                break
            if self._search.is_feasible(values):
                return values
        even = RandomSampler(seed=seed)
        for _ in range(_EVEN_DRAWS):
            values = {
                name: even.sample_independent(study, trial, name, distribution)
                for name, distribution in search_space.items()
            }
            if self._search.is_feasible(values):
                return values
        budget = self._search.max_parameters
        what = "" if budget is None else f" of at most {budget:,} parameters"
        raise InputError(
            f"no model{what} among {_EVEN_DRAWS:,} drawn from space {self._search.space!r} at "
            f"scale {self._search.scale!r}: add smaller sizes to it, or raise its budget"
        )

    def sample_independent(
        self,
        study: Study,
        trial: FrozenTrial,
        param_name: str,
        param_distribution: BaseDistribution,
    ) -> Any:
        """A value for what is no parameter of the search, which there is not."""
        raise AssertionError(f"{param_name} is sampled beside the space")


def check_feasible(search: Search) -> None:
    """Check that trials can be drawn at all.

    Raises:
        InputError: if next to none of the space may be trained.
    """
    optuna.logging.set_verbosity(optuna.logging.ERROR)
    optuna.create_study(sampler=FeasibleSampler(search)).ask(distributions(search))


def _seed(seed: int, number: int) -> int:
    """A seed of 32 bits for the trial ``number``."""
    digest = hashlib.sha256(f"{seed}/{number}".encode()).digest()
    return int.from_bytes(digest[:4], "big")
