"""Trials on disk as Optuna's, for a study that has forgotten them and for importances."""

from __future__ import annotations

from collections.abc import Sequence

import optuna
from optuna.importance import PedAnovaImportanceEvaluator, get_param_importances
from optuna.trial import FrozenTrial, TrialState, create_trial

from ablations.search.sampler import distributions
from ablations.search.search import Search
from ablations.search.trials import Trial

DIRECTIONS = ("minimize",)  # perplexity


def to_optuna(search: Search, trial: Trial) -> FrozenTrial | None:
    """The trial as Optuna has it; None before it has ended, or where it left nothing to learn from.

    One that diverged is as one that was pruned: the sampler then keeps away from it.
    """
    finished = trial.state == "finished"
    if not finished and trial.state not in ("pruned", "diverged"):
        return None
    return create_trial(
        state=TrialState.COMPLETE if finished else TrialState.PRUNED,
        value=trial.perplexity if finished else None,
        params=dict(trial.values),
        distributions=distributions(search),
        intermediate_values=dict(trial.curve),
        user_attrs={"cell": trial.name},
    )


def importances(search: Search, trials: Sequence[Trial]) -> dict[str, float]:
    """How much each parameter decides whether a finished trial is among the best tenth, by
    PED-ANOVA (https://arxiv.org/abs/2304.10255); shares of 1, the largest first.
    """
    optuna.logging.set_verbosity(optuna.logging.ERROR)
    study = optuna.create_study(directions=DIRECTIONS)
    study.add_trials([x for trial in trials if (x := to_optuna(search, trial)) is not None])
    return get_param_importances(study, evaluator=PedAnovaImportanceEvaluator())
