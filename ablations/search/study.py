"""Trials on disk as Optuna's, for a study that has forgotten them and for importances."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

import optuna
from optuna.importance import PedAnovaImportanceEvaluator, get_param_importances
from optuna.trial import FrozenTrial, TrialState, create_trial

from ablations.search.sampler import distributions
from ablations.search.search import Search
from ablations.search.trials import Trial, ranked
from experiments.run.progress import RunState

DIRECTIONS: tuple[Literal["minimize"]] = ("minimize",)  # perplexity


def to_optuna(search: Search, trial: Trial) -> FrozenTrial | None:
    """The trial as Optuna has it; None before it has ended, or where it left nothing to learn from.

    One that diverged is as one that was pruned: the sampler then keeps away from it.
    """
    finished = trial.state == RunState.DONE
    if not finished and trial.state not in (RunState.PRUNED, RunState.DIVERGED):
        return None
    return create_trial(
        state=TrialState.COMPLETE if finished else TrialState.PRUNED,
        value=trial.perplexity,
        params=dict(trial.values),
        distributions=distributions(search),
        intermediate_values=dict(trial.curve),
        user_attrs={"cell": trial.name},
    )


def importances(search: Search, trials: Sequence[Trial]) -> dict[str, float]:
    """How much each parameter decides whether a trial is among the best tenth, by PED-ANOVA
    (https://arxiv.org/abs/2304.10255); shares of 1, the largest first.

    The order is TPE's: those that finished by perplexity, then those that were pruned, the later
    the better, then those that diverged.
    """
    optuna.logging.set_verbosity(optuna.logging.ERROR)
    study = optuna.create_study(directions=DIRECTIONS)
    for place, trial in enumerate(ranked(trials)):
        frozen = to_optuna(search, trial)
        assert frozen is not None
        study.add_trial(
            create_trial(value=place, params=frozen.params, distributions=frozen.distributions)
        )
    return get_param_importances(study, evaluator=PedAnovaImportanceEvaluator())
