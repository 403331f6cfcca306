"""How far the trials of a search came, a pure function of the files on disk."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

from ablations.runner.attempts import newest, read_pruned, read_result
from ablations.search.parameter import Value
from ablations.search.search import Search
from experiments.run.attempt import read_attempt
from experiments.run.experiment import CONFIG_FILE, load_experiment
from experiments.run.progress import read_progress
from experiments.run.results import Result, valid_perplexities
from transformer.errors import InputError

State = Literal["finished", "pruned", "diverged", "failed", "running", "waiting"]


@dataclass(frozen=True, kw_only=True, slots=True)
class Trial:
    """One trial. ``perplexity`` is of the validation set: the result's, or where it was pruned,
    at ``step``; None where it is not finite or not known yet. ``curve`` is it by step.
    """

    name: str
    state: State
    values: Mapping[str, Value] = field(default_factory=dict)
    step: int = 0
    perplexity: float | None = None
    curve: Mapping[int, float] = field(default_factory=dict)
    result: Result | None = None
    reason: str = ""

    @property
    def has_ended(self) -> bool:
        """Whether nothing more will come of it."""
        return self.state not in ("running", "waiting")


def is_done(directory: Path) -> bool:
    """Whether a trial came to its end in ``directory``."""
    return read_result(directory) is not None or read_pruned(directory) is not None


def read_trials(search: Search, root: Path) -> tuple[Trial, ...]:
    """All trials that the search in ``root`` is to have.

    Raises:
        InputError: if a file cannot be read.
    """
    return tuple(read_trial(search, root, name) for name in search.names)


def read_trial(search: Search, root: Path, name: str) -> Trial:
    """The trial ``name``, wherever an attempt at it is at the moment.

    Raises:
        InputError: if a file cannot be read.
    """
    while True:
        directory = newest(root / name)
        if directory is None or not (directory / CONFIG_FILE).is_file():
            return Trial(name=name, state="waiting")
        try:
            return _read(search, directory, name)
        except (InputError, OSError):
            if newest(root / name) == directory:
                raise  # and not because another worker took it over or finished it meanwhile


def _read(search: Search, directory: Path, name: str) -> Trial:
    values = search.values(load_experiment(directory).config)
    curve = valid_perplexities(directory)
    result = read_result(directory)
    if result is not None:
        finite = math.isfinite(result.perplexity)
        return Trial(
            name=name,
            state="finished" if finite else "diverged",
            values=values,
            step=result.steps,
            perplexity=result.perplexity if finite else None,
            curve=curve,
            result=result,
            reason="" if finite else f"its perplexity is {result.perplexity}",
        )
    pruned = read_pruned(directory)
    if pruned is not None:
        finite = pruned.perplexity is not None
        return Trial(
            name=name,
            state="pruned" if finite else "diverged",
            values=values,
            step=pruned.step,
            perplexity=pruned.perplexity,
            curve=curve,
            reason="" if finite else f"no finite perplexity at step {pruned.step:,}",
        )
    attempt, progress = read_attempt(directory), read_progress(directory)
    given_up = attempt is not None and attempt.given_up
    return Trial(
        name=name,
        state="failed" if given_up else "running",
        values=values,
        step=progress.step if progress else 0,
        curve=curve,
        reason=attempt.failures[-1].reason if attempt and given_up and attempt.failures else "",
    )


def ranked(trials: Sequence[Trial]) -> list[Trial]:
    """Those that left something to learn from, the best first: what finished by perplexity, then
    what was pruned, the later the better, then what diverged.
    """
    order: dict[State, int] = {"finished": 0, "pruned": 1, "diverged": 2}

    def place(trial: Trial) -> tuple[int, int, float]:
        step = -trial.step if trial.state == "pruned" else 0
        return order[trial.state], step, trial.perplexity or math.inf

    return sorted((trial for trial in trials if trial.state in order), key=place)


def best(trials: Sequence[Trial]) -> Trial | None:
    """The finished trial of the lowest perplexity, the first of equals; None if none is."""
    return next((trial for trial in ranked(trials) if trial.state == "finished"), None)


def refuse_hopeless(search: Search, trials: Sequence[Trial], *, after: int = 10) -> None:
    """Check that not all of the first ``after`` trials, or of fewer that there are, were in vain.

    Raises:
        InputError: if none of them had a finite perplexity; it says what to change.
    """
    ended = [trial for trial in trials if trial.has_ended]
    if len(ended) < min(after, search.trials) or any(x.perplexity is not None for x in ended):
        return
    reason = next((trial.reason for trial in reversed(ended) if trial.reason), "no reason was left")
    ranges = ", ".join(
        f"{parameter.name} {parameter.bounds[0]} to {parameter.bounds[-1]}"
        for parameter in search.parameters
    )
    raise InputError(
        f"none of {len(ended)} trials of {search.name} had a finite perplexity (the last: "
        f"{reason}): narrow the space ({ranges}) or lower the scale's learning rate, and search "
        "in another --directory"
    )
