"""Trials of a search, read from its files."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path

from ablations.runs.attempts import Ended, locate, read_ended
from ablations.search.search import Search
from ablations.tables.changes import Value
from experiments.records.attempt import read_attempt
from experiments.records.checksums import check_unchanged
from experiments.records.experiment import BEST_FILE, CONFIG_FILE, Experiment, load_experiment
from experiments.records.outputs import valid_perplexities
from experiments.records.progress import RunState, read_progress
from experiments.records.result import Result
from transformer import formats
from transformer.config import to_dict
from transformer.errors import InputError
from transformer.files import write_json

# PED-ANOVA compares the best quarter with all. Of five parameters, that with ten times the effect
# of the others comes first in over 90 % of searches of 30 trials, in half of those of 10.
BEST = 0.25
_ENDED, _FINISHED = 30, 5


@dataclass(frozen=True, kw_only=True, slots=True)
class Trial:
    """One trial. ``perplexity`` is that of the validation set at the end or, if it was pruned, at
    ``step``; None if it is not finite or not known yet. ``curve`` has it by step. ``declared`` are
    the ``values`` in the units of the space.
    """

    name: str
    state: RunState
    values: Mapping[str, Value] = field(default_factory=dict)
    declared: Mapping[str, Value] = field(default_factory=dict)
    step: int = 0
    perplexity: float | None = None
    curve: Mapping[int, float] = field(default_factory=dict)
    result: Result | None = None
    reason: str = ""

    @property
    def has_ended(self) -> bool:
        """Whether it is finished, pruned or given up."""
        return self.state not in (RunState.RUNNING, RunState.WAITING)


def read_trials(search: Search, root: Path) -> tuple[Trial, ...]:
    """All trials of the search in ``root``, those that have not begun too."""
    return tuple(read_trial(search, root, name) for name in search.names)


def read_trial(search: Search, root: Path, name: str) -> Trial:
    """The trial ``name``, finished or as its newest attempt has left it; failed if a file of it has
    changed or cannot be read.
    """
    while True:
        directory = locate(root / name)
        if not (directory / CONFIG_FILE).is_file():
            return Trial(name=name, state=RunState.WAITING)
        try:
            return _read(search, directory, name)
        except (InputError, OSError) as error:
            if locate(root / name) == directory:  # nobody has renamed it meanwhile
                return Trial(name=name, state=RunState.FAILED, reason=f"left out: {error}")


def _read(search: Search, directory: Path, name: str) -> Trial:
    values = search.values(load_experiment(directory).config)
    curve = valid_perplexities(directory)
    known = partial(replace, values=values, declared=search.declare(values))
    ended = read_ended(directory)
    if ended is not None:
        if ended.result is not None:
            check_unchanged(directory)
        return known(ended_trial(name, replace(ended, curve=curve)))
    attempt, progress = read_attempt(directory), read_progress(directory)
    given_up = attempt is not None and attempt.given_up
    return known(
        Trial(
            name=name,
            state=RunState.FAILED if given_up else RunState.RUNNING,
            curve=curve,
            step=progress.step if progress else 0,
            reason=attempt.failures[-1].reason if attempt and given_up and attempt.failures else "",
        )
    )


def ended_trial(name: str, ended: Ended) -> Trial:
    """The trial that has left ``ended``, without its values."""
    result, pruned = ended.result, ended.pruned
    if result is not None:
        finite = math.isfinite(result.perplexity)
        return Trial(
            name=name,
            state=RunState.DONE if finite else RunState.DIVERGED,
            curve=ended.curve,
            step=result.steps,
            perplexity=result.perplexity if finite else None,
            result=result,
            reason="" if finite else f"its perplexity is {result.perplexity}",
        )
    assert pruned is not None
    finite = pruned.perplexity is not None
    return Trial(
        name=name,
        state=RunState.PRUNED if finite else RunState.DIVERGED,
        curve={step: value for step, value in ended.curve.items() if step <= pruned.step},
        step=pruned.step,
        perplexity=pruned.perplexity,
        reason="" if finite else f"no finite perplexity at step {pruned.step:,}",
    )


def ranked(trials: Sequence[Trial]) -> list[Trial]:
    """The trials that have a value, the best first: finished ones by perplexity, then pruned ones,
    the latest first, then diverged ones.
    """
    order = {RunState.DONE: 0, RunState.PRUNED: 1, RunState.DIVERGED: 2}

    def place(trial: Trial) -> tuple[int, int, float]:
        step = -trial.step if trial.state == RunState.PRUNED else 0
        return order[trial.state], step, trial.perplexity or math.inf

    return sorted((trial for trial in trials if trial.state in order), key=place)


def best(trials: Sequence[Trial]) -> Trial | None:
    """The finished trial with the lowest perplexity; None if none has finished."""
    return next((trial for trial in ranked(trials) if trial.state == RunState.DONE), None)


def missing_for_importances(trials: Sequence[Trial]) -> str:
    """How many trials are lacking to tell the importances; empty if there are enough."""
    ended = ranked(trials)
    lacking = (
        (_ENDED - len(ended), "trials must end"),
        (_FINISHED - sum(trial.state == RunState.DONE for trial in ended), "must finish"),
    )
    return " and ".join(f"{count} more {what}" for count, what in lacking if count > 0)


def write_best(search: Search, trials: Sequence[Trial], root: Path) -> None:
    """Write the best configuration as an experiment, ``best.json``, once a trial has finished."""
    found = best(trials)
    if found is None:
        return
    ended = sum(trial.has_ended for trial in trials)
    experiment = Experiment(
        name=f"{search.name}-best",
        description=(
            f"{search.title}, the best of {ended} trials at scale {search.scale}: {found.name}, "
            f"perplexity {formats.number(found.perplexity, 3)}"
        ),
        config=search.configure(found.values),
        tags=("search", search.space, search.scale),
    )
    write_json(root / BEST_FILE, to_dict(experiment))


def refuse_hopeless(search: Search, trials: Sequence[Trial], *, after: int = 10) -> None:
    """Check that one of the first ``after`` trials, or of all, had a finite perplexity."""
    ended = [trial for trial in trials if trial.has_ended]
    if len(ended) < min(after, search.trials) or any(x.perplexity is not None for x in ended):
        return
    reason = next((trial.reason for trial in reversed(ended) if trial.reason), "no reason recorded")
    ranges = ", ".join(
        f"{parameter.name} {parameter.bounds[0]} to {parameter.bounds[-1]}"
        for parameter in search.parameters
    )
    raise InputError(
        f"none of {len(ended)} trials of {search.name} had a finite perplexity (the last: "
        f"{reason}): narrow the space ({ranges}) or lower the scale's learning rate, and search "
        "in another --directory"
    )
