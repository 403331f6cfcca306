"""A small search, trials that end at once, and a loop in place of the driver."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import optuna
from optuna.storages import JournalStorage
from optuna.storages.journal import JournalFileBackend

from ablations.files import STUDY_FILE
from ablations.runs.attempts import leave_pruned
from ablations.runs.search_runs import SearchRuns
from ablations.runs.study import Study
from ablations.search.search import Search, SearchOptions, claim_search, make_search
from ablations.search.space import BASE_LR, Space
from ablations.tables.changes import Value
from ablations.tables.scale import Scale
from ablations.tables.table import Cell
from experiments.records.attempt import Attempt, Failure, write_attempt
from experiments.records.result import save_result
from experiments.records.run import locate, read_run
from tests.ablations.samples import TINY, leave_curve, result
from tests.samples import new_run

# A perplexity for the parameters of a trial, in place of its training.
Objective = Callable[[Mapping[str, Any]], float]


def bowl(values: Mapping[str, Any]) -> float:
    """Lowest at a factor of 0.7 and a warm-up of 101; the factor matters more."""
    factor = math.log(values["learning_rate_factor"] / 0.7)
    return 3.0 + 4.0 * factor**2 + 0.01 * math.log(values["warmup_steps"] / 101) ** 2


def search_of(space: Space = BASE_LR, scale: Scale = TINY, **asked: Any) -> Search:
    """A search, by default at the tests' scale and of seven trials."""
    words: dict[str, Any] = {"scale": scale.name, "trials": 7, **asked}
    return make_search(space, scale, SearchOptions(**words))


def small_search(root: Path, space: Space = BASE_LR, **asked: Any) -> Search:
    """A search at the tests' scale, claimed."""
    return claim_search(root, search_of(space, **asked))


def curve(search: Search, perplexity: float) -> dict[int, float]:
    """Validation perplexities by step of a run that ends at ``perplexity``."""
    every, last = search.base.training.validate_every_steps, search.base.training.max_steps
    return {step: perplexity * last / step for step in range(every, last + 1, every)}


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
    name = directory.name.partition(".")[0]
    new_run(directory, search.experiment(name, values))
    steps = search.base.training.max_steps
    last = steps if until is None else until
    leave_curve(directory, {x: y for x, y in curve(search, perplexity).items() if x <= last})
    if until is None:
        made = result(Cell(name, search.base.training.seed), perplexity, bleu)
        save_result(directory, dataclasses.replace(made, steps=steps))


def give_up(search: Search, root: Path, name: str, values: Mapping[str, Value], why: str) -> None:
    """Write the files of a trial that was given up."""
    directory = root / f"{name}.attempt-2"
    leave(search, directory, values, until=0)
    failure = Failure(attempt=1, reason=why, lines=("Traceback", why), at=1.0)
    made: dict[str, Any] = {"cell": name, "number": 2, "worker": "here-1", "host": "here"}
    write_attempt(directory, Attempt(**made, started_at=2.0, failures=(failure,), given_up=True))


def work_on(root: Path, objective: Objective, *, count: int | None = None) -> None:
    """Carry out the trials that are left one by one, pruned when the study says so."""
    planned = SearchRuns(root)
    search, study = planned.search, Study(planned)
    left = [x.name for x in planned.folder.look() if not x.has_ended and not x.is_given_up]
    for name in left[:count]:
        values, directory = search.values(study.begin(name).config), root / name
        whole = curve(search, objective(values))
        before_the_end = {x: whole[x] for x in whole if x < search.base.training.max_steps}
        pruned = study.prunes_at(name, before_the_end)
        if (attempt := locate(directory)).exists():
            attempt.rename(directory)
        leave(search, directory, values, until=pruned, perplexity=objective(values))
        if pruned is not None:
            leave_pruned(directory, pruned, whole[pruned])
        study.end(name, read_run(directory))


def journal(root: Path) -> list[optuna.trial.FrozenTrial]:
    """The trials in the journal of a directory, as any program reads them."""
    storage = JournalStorage(JournalFileBackend(str(root / STUDY_FILE)))
    return optuna.load_study(study_name=None, storage=storage).trials
