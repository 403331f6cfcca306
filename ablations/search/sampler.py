"""A search in Optuna's terms."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from typing import Any

import optuna
from optuna import Study
from optuna.distributions import (
    BaseDistribution,
    CategoricalDistribution,
    FloatDistribution,
    IntDistribution,
)
from optuna.importance import PedAnovaImportanceEvaluator, get_param_importances
from optuna.samplers import BaseSampler, CmaEsSampler, RandomSampler, TPESampler
from optuna.trial import FrozenTrial, TrialState, create_trial

from ablations.search.search import Search
from ablations.search.trials import BEST, Trial, ranked
from experiments.records.progress import RunState
from transformer.errors import InputError

# Hyperband has a TPE model for each bracket, and ten random trials for each would be most of a
# search.
_STARTUP_TRIALS = 5
_MODEL_DRAWS = 20
_EVEN_DRAWS = 1_000


def distributions(search: Search) -> dict[str, BaseDistribution]:
    """The parameters of ``search`` as Optuna's distributions."""
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
    """Samples all parameters of a trial together until they make a valid model within the budget.

    It draws by the search's sampler, and uniformly while there are too few trials or if that finds
    no such model. CMA-ES models numbers alone, and so choices are always drawn uniformly.
    Random numbers depend on the seed and the trial's number alone.
    """

    def __init__(self, search: Search) -> None:
        self._search = search

    def infer_relative_search_space(
        self, study: Study, trial: FrozenTrial
    ) -> dict[str, BaseDistribution]:
        """All parameters, the same in each trial."""
        return distributions(self._search)

    def sample_relative(
        self, study: Study, trial: FrozenTrial, search_space: dict[str, BaseDistribution]
    ) -> dict[str, Any]:
        """Values of all parameters."""
        seed = _seed(self._search.base.training.seed, trial.number)
        model, even = self._model(seed), RandomSampler(seed=seed)
        modelled = {
            name: distribution
            for name, distribution in search_space.items()
            if self._search.sampler == "tpe"
            or not isinstance(distribution, CategoricalDistribution)
        }
        for draw in range(_MODEL_DRAWS + _EVEN_DRAWS):
            values = model.sample_relative(study, trial, modelled) if draw < _MODEL_DRAWS else {}
            values |= {
                name: even.sample_independent(study, trial, name, distribution)
                for name, distribution in search_space.items()
                if name not in values
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
        """Never called: all parameters are sampled together."""
        raise AssertionError(f"{param_name} is not a parameter of the space")

    def _model(self, seed: int) -> BaseSampler:
        """Optuna's sampler; it samples nothing while there are too few trials."""
        if self._search.sampler == "random":
            return RandomSampler(seed=seed)
        if self._search.sampler == "cmaes":
            return CmaEsSampler(seed=seed)
        return TPESampler(
            seed=seed, multivariate=True, constant_liar=True, n_startup_trials=_STARTUP_TRIALS
        )


def check_feasible(search: Search) -> None:
    """Check that a trial can be sampled."""
    optuna.logging.set_verbosity(optuna.logging.ERROR)
    optuna.create_study(sampler=FeasibleSampler(search)).ask(distributions(search))


def _seed(seed: int, number: int) -> int:
    """A 32-bit seed for a trial."""
    digest = hashlib.sha256(f"{seed}/{number}".encode()).digest()
    return int.from_bytes(digest[:4], "big")


def to_optuna(search: Search, trial: Trial) -> FrozenTrial | None:
    """The trial as Optuna's; None if it has no value.

    A trial that diverged becomes a pruned one, which the sampler avoids.
    """
    finished = trial.state == RunState.DONE
    if not finished and trial.state not in (RunState.PRUNED, RunState.DIVERGED):
        return None
    of_space = distributions(search)
    return create_trial(
        state=TrialState.COMPLETE if finished else TrialState.PRUNED,
        value=trial.perplexity,
        params=dict(trial.values),
        distributions={name: of_space[name] for name in trial.values},
        intermediate_values=dict(trial.curve),
    )


def importances(search: Search, trials: Sequence[Trial]) -> dict[str, float]:
    """How much each parameter matters for being among the best quarter, the largest first, as
    shares of 1, by PED-ANOVA (https://arxiv.org/abs/2304.10255) over the ranks of the trials.
    """
    optuna.logging.set_verbosity(optuna.logging.ERROR)
    study = optuna.create_study()
    for place, trial in enumerate(ranked(trials)):
        frozen = to_optuna(search, trial)
        assert frozen is not None
        study.add_trial(
            create_trial(value=place, params=frozen.params, distributions=frozen.distributions)
        )
    return get_param_importances(study, evaluator=PedAnovaImportanceEvaluator(target_quantile=BEST))
