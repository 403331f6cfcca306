"""What a search's directory holds: a space at a scale, and how many trials.

``search.json`` has all that trials and the report need, so that neither depends on a declaration
that may have changed since.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from ablations.files import SEARCH_FILE, trial_name
from ablations.search.rungs import Pruner, plan_rungs
from ablations.search.space import Parameter, Space
from ablations.search.spaces import load_space
from ablations.tables.changes import Value, columns
from ablations.tables.find import find_scale
from ablations.tables.plan import choose_arithmetic
from ablations.tables.scale import Scale
from ablations.tables.table3 import BASE
from experiments.records.experiment import Experiment
from transformer.config import Config, Precision, from_dict, override
from transformer.errors import InputError
from transformer.evaluation.counts import count_parameters
from transformer.files import read_json

Sampler = Literal["tpe", "random", "cmaes"]
# Hyperband with a factor of three compares runs after one and three of nine parts, where the
# warm-up allows it.
_PARTS = 9


@dataclass(frozen=True, kw_only=True, slots=True)
class Search:
    """A space at a scale.

    ``base`` and ``parameters`` are those of the scale; all trials share the seed of ``base``. No
    model has more than ``max_parameters`` parameters. ``declared`` are the parameters in
    the units of the space; searches of earlier versions lack them.
    """

    space: str
    title: str
    scale: str
    trials: int
    base: Config
    parameters: tuple[Parameter, ...]
    max_parameters: int | None
    declared: tuple[Parameter, ...] = ()
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
        """The steps at which trials may be pruned."""
        return plan_rungs(self.pruner, self.base, self.parameters)

    @property
    def axes(self) -> tuple[Parameter, ...]:
        """The parameters in the units of the space."""
        return self.declared or self.parameters

    def declare(self, values: Mapping[str, Value]) -> dict[str, Value]:
        """The parameters' ``values`` in the units of the space."""
        pairs = zip(self.parameters, self.axes, strict=True)
        return {ours.name: ours.unmapped(values[ours.name], theirs) for ours, theirs in pairs}

    def configure(self, values: Mapping[str, Value]) -> Config:
        """The base with the ``values`` of the parameters.

        Raises:
            InputError: if they make no valid model.
        """
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
    """The search of ``space`` at ``scale``.

    Raises:
        InputError: for an invalid number of trials or seed, or a value that the scale cannot map.
    """
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
    """The search that a command line asks for, with a space and a scale by name.

    Raises:
        InputError: if an argument is not usable, or hardly any of the space is.
    """
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
    """The search of a directory.

    Raises:
        InputError: if it is not the directory of a search.
    """
    path = directory / SEARCH_FILE
    if not path.is_file():
        raise InputError(f"{directory} is not the directory of a search: it has no {SEARCH_FILE}")
    values = read_json(path)
    values.pop("study", None)  # of directories that had a database
    return from_dict(Search, values, str(path))
