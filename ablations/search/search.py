"""What a search's directory is for: which space, at which scale, how many trials.

``search.json`` holds all that trials and report need, so that neither reads a declaration that may
have changed since.
"""

from __future__ import annotations

import secrets
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from filelock import FileLock

from ablations.search.parameter import Parameter, Value
from ablations.search.space import Space
from ablations.tables.plan import PLAN_FILE, choose_arithmetic, same_arithmetic
from ablations.tables.scale import Scale
from ablations.tables.table3 import BASE
from experiments.run.experiment import Experiment
from experiments.run.files import read_json, write_json
from transformer.config import Config, Precision, differences, from_dict, override, to_dict
from transformer.errors import InputError
from transformer.evaluation.counts import count_parameters

SEARCH_FILE = "search.json"
_LOCK_FILE = ".search.lock"
# Hyperband with a factor of three compares runs after one and three of nine parts. The parts are a
# little longer than a ninth, or it would end runs at their last step too.
_PARTS = 9


@dataclass(frozen=True, kw_only=True, slots=True)
class Search:
    """A space at a scale.

    ``base`` is the base's configuration as it is run, with the seed that all trials share, and
    ``parameters`` are as they are run. No model has more than ``max_parameters`` trained numbers.
    ``study`` is the name under which the storage knows the directory, given when it is claimed.
    """

    space: str
    title: str
    scale: str
    trials: int
    base: Config
    parameters: tuple[Parameter, ...]
    max_parameters: int | None
    study: str = ""

    @property
    def name(self) -> str:
        """Under which it is tracked."""
        return f"{self.space}-{self.scale}"

    @property
    def names(self) -> tuple[str, ...]:
        """Its trials, which are folders below its directory."""
        return tuple(f"trial-{number:04}" for number in range(self.trials))

    def configure(self, values: Mapping[str, Value]) -> Config:
        """The base with the ``values`` of parameters, by name.

        Raises:
            InputError: if no such model can be.
        """
        changes = {
            field: values[parameter.name]
            for parameter in self.parameters
            for field in parameter.fields
        }
        return override(self.base, **changes)

    def is_feasible(self, values: Mapping[str, Value]) -> bool:
        """Whether a model with these values can be, and keeps within the budget."""
        try:
            model = self.configure(values).model
        except InputError:
            return False
        return self.max_parameters is None or count_parameters(model) <= self.max_parameters

    def values(self, config: Config) -> dict[str, Value]:
        """The values that a trial's configuration was made of."""
        found = {**to_dict(config.model), **to_dict(config.training)}
        return {parameter.name: found[parameter.name] for parameter in self.parameters}

    def first(self) -> dict[str, Value]:
        """What the first trial takes: the base itself; nothing where the space leaves it out."""
        values = self.values(self.base)
        held = all(parameter.holds(values[parameter.name]) for parameter in self.parameters)
        return values if held and self.configure(values) == self.base else {}

    def experiment(self, name: str, values: Mapping[str, Value]) -> Experiment:
        """What the trial ``name`` trains."""
        return Experiment(
            name=f"{self.name}/{name}",
            description=f"{self.title}, {name} at scale {self.scale}",
            config=self.configure(values),
            group=self.name,
            tags=("search", self.space, self.scale),
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
    """The search of ``space`` at ``scale``.

    Raises:
        InputError: for a number of trials or a seed that cannot be, or a value that the scale
            cannot map.
    """
    if trials < 1:
        raise InputError(f"--trials is {trials}, but must be at least 1")
    base = choose_arithmetic(scale.apply(override(BASE, seed=seed)), precision, threads)
    every = base.training.max_steps // _PARTS + 1
    budget = space.budget
    return Search(
        space=space.name,
        title=space.title,
        scale=scale.name,
        trials=trials,
        base=override(base, validate_every_steps=every),
        parameters=space.at(scale),
        max_parameters=None if budget is None else int(budget * count_parameters(base.model)),
    )


def is_search(directory: Path) -> bool:
    """Whether ``directory`` is a search's."""
    return (directory / SEARCH_FILE).is_file()


def load_search(directory: Path) -> Search:
    """The search that a directory belongs to.

    Raises:
        InputError: if it is not a search's.
    """
    path = directory / SEARCH_FILE
    if not path.is_file():
        raise InputError(f"{directory} is not the directory of a search: it has no {SEARCH_FILE}")
    return from_dict(Search, read_json(path), str(path))


def settle_search(directory: Path, search: Search) -> Search:
    """``search`` with the precision and the threads of the trials in ``directory``."""
    found = load_search(directory).base if is_search(directory) else None
    return replace(search, base=same_arithmetic(search.base, found))


def claim_search(directory: Path, search: Search) -> Search:
    """Make ``directory`` the search's, or extend the search there by further trials.

    Raises:
        InputError: if it belongs to another search or to a table; the message says what differs.
    """
    if (directory / PLAN_FILE).exists():
        raise InputError(f"{directory} belongs to a table: choose another --directory")
    directory.mkdir(parents=True, exist_ok=True)
    with FileLock(directory / _LOCK_FILE):
        found = load_search(directory) if is_search(directory) else None
        search = settle_search(directory, search)
        if found is None:
            search = replace(search, study=f"{search.name}-{secrets.token_hex(4)}")
        else:
            search = _extend(found, search, directory)
        if search != found:
            write_json(directory / SEARCH_FILE, to_dict(search))
    return search


def _extend(found: Search, search: Search, directory: Path) -> Search:
    changes = _differences(found, search)
    if changes:
        raise InputError(
            f"{directory} belongs to another search ({'; '.join(changes)}): "
            "choose another --directory, or remove this one"
        )
    return replace(found, trials=max(found.trials, search.trials))


def _differences(found: Search, search: Search) -> list[str]:
    """Of the names, or where those are alike, of all that must stay between two starts."""
    before, after = (f"{each.space} at scale {each.scale}" for each in (found, search))
    return differences(before, after, "search") or differences(_identity(found), _identity(search))


def _identity(search: Search) -> dict[str, Any]:
    return {
        "base": to_dict(search.base),
        "parameters": {each.name: to_dict(each) for each in search.parameters},
        "max_parameters": search.max_parameters,
    }
