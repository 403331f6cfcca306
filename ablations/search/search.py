"""Declare a search: a space at a scale.

``search.json`` has all that trials and the report need, so that neither depends on a declaration
that may have changed since.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Literal

from ablations.files import PLAN_FILE, SEARCH_FILE, trial_name
from ablations.search.space import Parameter, Space
from ablations.search.spaces import load_space
from ablations.tables.changes import Value, columns
from ablations.tables.find import find_scale
from ablations.tables.plan import choose_arithmetic, same_arithmetic
from ablations.tables.scale import Scale
from ablations.tables.table3 import BASE
from experiments.records.experiment import Experiment
from transformer.config import Config, Precision, differences, from_dict, override, to_dict
from transformer.errors import InputError
from transformer.evaluation.counts import count_parameters
from transformer.files import make_directory, read_json, write_json

Sampler = Literal["tpe", "random", "cmaes"]
Pruner = Literal["none", "hyperband", "median"]
FACTOR = 3  # of Hyperband: each rung lies at three times the step of the one before
# Hyperband with a factor of three compares runs after one and three of nine parts, where the
# warm-up allows it.
_PARTS = 9


@dataclass(frozen=True, kw_only=True, slots=True)
class Search:
    """A space at a scale.

    ``base`` and ``parameters`` are those of the scale; all trials share the seed of ``base``. No
    model has more than ``max_parameters`` parameters. ``declared`` are the parameters in
    the units of the space.
    """

    space: str
    title: str
    scale: str
    trials: int
    base: Config
    parameters: tuple[Parameter, ...]
    max_parameters: int | None
    declared: tuple[Parameter, ...]
    sampler: Sampler = "tpe"
    pruner: Pruner = "hyperband"

    @property
    def name(self) -> str:
        """The name under which it is tracked."""
        return f"{self.space}-{self.scale}"

    @property
    def names(self) -> tuple[str, ...]:
        """Its trials, which are also folders in its directory."""
        return tuple(map(trial_name, range(self.trials)))

    @property
    def rungs(self) -> tuple[int, ...]:
        """The steps at which trials may be pruned.

        The first is the first validation after the longest warm-up of the space, so that each trial
        has ended its own, and all are compared at the same steps.
        """
        every, last = self.base.training.validate_every_steps, self.base.training.max_steps
        step = (self.longest_warm_up // every + 1) * every
        rungs: list[int] = []
        while self.pruner != "none" and step < last:
            rungs.append(step)
            step = step * FACTOR if self.pruner == "hyperband" else step + every
        return tuple(rungs)

    @property
    def longest_warm_up(self) -> int:
        """The steps of the longest warm-up that the space allows."""
        for parameter in self.parameters:
            if "warmup_steps" in parameter.fields:
                return max(int(value or 0) for value in parameter.bounds)
        return self.base.training.warmup_steps

    def declare(self, values: Mapping[str, Value]) -> dict[str, Value]:
        """The parameters' ``values`` in the units of the space."""
        pairs = zip(self.parameters, self.declared, strict=True)
        return {ours.name: ours.unmapped(values[ours.name], theirs) for ours, theirs in pairs}

    def configure(self, values: Mapping[str, Value]) -> Config:
        """The base with the ``values`` of the parameters."""
        changes = {
            field: values[parameter.name]
            for parameter in self.parameters
            for field in parameter.fields
        }
        return override(self.base, **changes)

    def is_feasible(self, values: Mapping[str, Value]) -> bool:
        """Whether these values make a valid model within the budget."""
        try:
            model = self.configure(values).model
        except InputError:
            return False
        return self.max_parameters is None or count_parameters(model) <= self.max_parameters

    def values(self, config: Config) -> dict[str, Value]:
        """The parameters' values in a configuration."""
        found = columns(config)
        return {parameter.name: found[parameter.name] for parameter in self.parameters}

    def first(self) -> dict[str, Value]:
        """The values of the first trial: the base's; empty if the space does not contain it."""
        values = self.values(self.base)
        held = all(parameter.holds(values[parameter.name]) for parameter in self.parameters)
        return values if held and self.configure(values) == self.base else {}

    def experiment(self, name: str, values: Mapping[str, Value]) -> Experiment:
        """The experiment of the trial ``name``."""
        return Experiment(
            name=f"{self.name}/{name}",
            description=f"{self.title}, {name} at scale {self.scale}",
            config=self.configure(values),
            group=self.name,
            tags=("search", self.space, self.scale),
            labels={"search": self.space, "scale": self.scale, "trial": name},
        )


def make_search(
    space: Space,
    scale: Scale,
    *,
    trials: int,
    seed: int,
    precision: Precision | None = None,
    threads: int | None = None,
) -> Search:
    """The search of ``space`` at ``scale``."""
    if trials < 1:
        raise InputError(f"--trials is {trials}, but must be at least 1")
    base = choose_arithmetic(scale.apply(override(space.base, seed=seed)), precision, threads)
    if space.base.training.validate_every_steps == BASE.training.validate_every_steps:
        base = override(base, validate_every_steps=base.training.max_steps // _PARTS + 1)
    budget = space.budget
    return Search(
        space=space.name,
        title=space.title,
        scale=scale.name,
        trials=trials,
        base=base,
        parameters=space.at(scale),
        declared=tuple(parameter.shown() for parameter in space.parameters),
        max_parameters=None if budget is None else int(budget * count_parameters(base.model)),
    )


def prepare_search(
    space: str,
    scale: str,
    *,
    trials: int,
    seed: int = 1,
    precision: Precision | None = None,
    threads: int | None = None,
) -> Search:
    """The search that a command line asks for, with a space and a scale by name."""
    from ablations.search.sampler import check_feasible  # which imports Optuna

    declared = load_space(space)
    search = make_search(
        declared,
        find_scale(declared, scale),
        trials=trials,
        seed=seed,
        precision=precision,
        threads=threads,
    )
    check_feasible(search)
    return search


def is_search(directory: Path) -> bool:
    """Whether ``directory`` is that of a search."""
    return (directory / SEARCH_FILE).is_file()


def load_search(directory: Path) -> Search:
    """The search of a directory."""
    path = directory / SEARCH_FILE
    if not path.is_file():
        raise InputError(f"{directory} is not the directory of a search: it has no {SEARCH_FILE}")
    return from_dict(Search, read_json(path), str(path))


def settle_search(
    directory: Path,
    search: Search,
    *,
    sampler: Sampler | None = None,
    pruner: Pruner | None = None,
) -> Search:
    """``search`` with the precision, threads, sampler and pruner of earlier trials in
    ``directory``, unless others are chosen.
    """
    found = load_search(directory) if is_search(directory) else None
    search = replace(
        search,
        base=same_arithmetic(search.base, found and found.base),
        sampler=sampler or (found or search).sampler,
        pruner=pruner or (found or search).pruner,
    )
    if search.sampler == "cmaes" and all(each.choices for each in search.parameters):
        raise InputError(
            f"space {search.space!r} has choices alone, and CMA-ES models numbers: take --sampler "
            "tpe or random"
        )
    return search


def claim_search(directory: Path, search: Search) -> Search:
    """Make ``directory`` that of the search, or add trials to the search there."""
    if (directory / PLAN_FILE).exists():
        raise InputError(f"{directory} belongs to a table: choose another --directory")
    make_directory(directory)
    found = load_search(directory) if is_search(directory) else None
    search = settle_search(directory, search, sampler=search.sampler, pruner=search.pruner)
    if found is not None:
        before, after = (f"{each.space} at scale {each.scale}" for each in (found, search))
        changes = differences(before, after, "search") or differences(
            _identity(found), _identity(search)
        )
        if changes:
            raise InputError(
                f"{directory} belongs to another search ({'; '.join(changes)}): "
                "choose another --directory, or remove this one"
            )
        search = replace(found, trials=max(found.trials, search.trials))
    write_json(directory / SEARCH_FILE, to_dict(search))
    return search


def _identity(search: Search) -> dict[str, Any]:
    return {
        "base": to_dict(search.base),
        "parameters": {each.name: to_dict(each) for each in search.parameters},
        "max_parameters": search.max_parameters,
        "sampler": search.sampler,
        "pruner": search.pruner,
    }
