"""A small search, trials that end at once, and a loop in place of the workers."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import optuna

from ablations.runner.run_set import RunSet
from ablations.search.claim import claim_search
from ablations.search.rungs import Pruner
from ablations.search.runs import SearchRuns
from ablations.search.sampler import DIRECTIONS
from ablations.search.search import Search, make_search
from ablations.search.space import Space
from ablations.search.spaces import BASE_LR
from ablations.tables.changes import Value
from ablations.tables.table import Cell
from experiments.run.attempt import Attempt, Failure, write_attempt
from experiments.run.experiment import claim
from experiments.run.results import METRICS_FILE, save_result
from tests.ablations.samples import TINY, result

optuna.logging.set_verbosity(optuna.logging.ERROR)

# A perplexity for the parameters of a trial, in place of its training.
Objective = Callable[[Mapping[str, Any]], float]


def bowl(values: Mapping[str, Any]) -> float:
    """Lowest at a factor of 0.7 and a warm-up of 101; the factor matters more."""
    factor = math.log(values["learning_rate_factor"] / 0.7)
    return 3.0 + 4.0 * factor**2 + 0.01 * math.log(values["warmup_steps"] / 101) ** 2


def small_search(
    root: Path,
    *,
    space: Space = BASE_LR,
    trials: int = 7,
    seed: int = 1,
    pruner: Pruner = "hyperband",
) -> Search:
    """A search at the tests' scale, claimed."""
    search = make_search(space, TINY, trials=trials, seed=seed)
    return claim_search(root, dataclasses.replace(search, pruner=pruner))


def curve(search: Search, perplexity: float) -> dict[int, float]:
    """Validation perplexities by step of a run that ends at ``perplexity``."""
    training = search.base.training
    steps = range(
        training.validate_every_steps, training.max_steps + 1, training.validate_every_steps
    )
    return {step: perplexity * training.max_steps / step for step in steps}


def leave(
    search: Search,
    directory: Path,
    values: Mapping[str, Value],
    *,
    until: int | None = None,
    perplexity: float = 3.0,
    bleu: float = 41.0,
) -> None:
    """Write the files of a finished trial, or of one that reached the step ``until``."""
    directory.mkdir(parents=True, exist_ok=True)
    name = directory.name.partition(".")[0]
    claim(directory, search.experiment(name, values))
    lines = ["step,loss,train_perplexity,learning_rate,gradient_norm,valid_loss,valid_perplexity"]
    for step, value in curve(search, perplexity).items():
        if until is None or step <= until:
            lines += [f"{step},2.5,12.2,0.001,1.5,,", f"{step},,,,,1.1,{value:.6g}"]
    (directory / METRICS_FILE).write_text("\n".join(lines) + "\n", encoding="utf-8")
    if until is None:
        steps = search.base.training.max_steps
        made = result(Cell(name, search.base.training.seed), perplexity, bleu)
        save_result(directory, dataclasses.replace(made, steps=steps))


def give_up(search: Search, root: Path, name: str, values: Mapping[str, Value], why: str) -> None:
    """Write the files of a trial that was given up."""
    directory = root / f"{name}.attempt-2"
    leave(search, directory, values, until=0)
    failure = Failure(attempt=1, reason=why, lines=("Traceback", why), at=1.0)
    write_attempt(
        directory,
        Attempt(
            study=search.name,
            cell=name,
            number=2,
            worker="here-1",
            host="here",
            started_at=2.0,
            failures=(failure,),
            given_up=True,
        ),
    )


def work_on(work: SearchRuns, objective: Objective, *, count: int | None = None) -> optuna.Study:
    """Run the missing trials one by one, as workers do in many processes."""
    protocol: RunSet = work
    study = optuna.create_study(
        study_name=protocol.study,
        directions=DIRECTIONS,
        sampler=protocol.sampler,
        pruner=protocol.pruner,
    )
    done = [name for name in protocol.names if protocol.is_done(protocol.root / name)]
    study.add_trials([x for name in done if (x := protocol.finished_trial(name)) is not None])
    for name in [name for name in protocol.names if name not in done][:count]:
        study.enqueue_trial(dict(protocol.parameters(name)), user_attrs={"cell": name})
        run_trial(work, study, name, objective)
    return study


def run_trial(work: SearchRuns, study: optuna.Study, name: str, objective: Objective) -> None:
    """Run one trial, pruned when the pruner says so."""
    trial = study.ask()
    experiment = work.experiment(name, trial)
    search, directory = work.search, work.root / f"{name}.attempt-1"
    perplexity = objective(trial.params)
    leave(search, directory, search.values(experiment.config), until=0)
    for step, value in curve(search, perplexity).items():
        trial.report(value, step)
        if trial.should_prune():
            leave(search, directory, trial.params, until=step, perplexity=perplexity)
            work.prune(directory, step, value)
            directory.rename(work.root / name)
            study.tell(trial, state=optuna.trial.TrialState.PRUNED)
            return
    leave(search, directory, trial.params, perplexity=perplexity)
    directory.rename(work.root / name)
    ended = work.finished_trial(name)
    assert ended is not None
    finite = ended.state == optuna.trial.TrialState.COMPLETE
    study.tell(trial, ended.values if finite else None, state=ended.state)
