"""A search: a space at a scale.

``search.json`` has everything that trials and the report need, so that neither depends on a
declaration that may have changed since.
"""

from __future__ import annotations

import warnings
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any, Literal

from ablations.files import SEARCH_FILE
from ablations.search.space import Hyperparameter, Space
from ablations.tables.changes import Value, columns, is_option, option_name, with_changes
from ablations.tables.plan_file import check_same, share_arithmetic
from ablations.tables.scale import Scale
from experiments.devices import MOST
from experiments.records.experiment import Experiment
from transformer.config import OPTIONS_OF, Config, from_dict, override, to_dict
from transformer.errors import InputError
from transformer.evaluation.counts import count_parameters
from transformer.files import make_directory, read_json, write_json
from transformer.parameters import resolve
from transformer.variant import class_name

FACTOR = 3  # Hyperband's reduction factor: each rung is at three times the step of the one before
_PARTS = 9  # of training: trials are compared after one and three of them, warm-up permitting


def trial_name(number: int) -> str:
    """The name of a trial and its folder."""
    return f"trial-{number:04}"


@dataclass(frozen=True, kw_only=True, slots=True)
class SearchOptions:
    """Options of ``search``; the fields' docstrings are their help."""

    scale: str = ""
    """a scale that list prints [default for files:FOLDER: chosen by the amount of text]"""

    trials: int
    """total number of trials"""

    seed: int = 1
    """seed of all trials and of the sampling"""

    sampler: Literal["tpe", "random"] = "tpe"
    """how settings are proposed"""

    pruner: Literal["hyperband", "median", "none"] = "hyperband"
    """how poor trials are ended early, after the warm-up"""


@dataclass(frozen=True, kw_only=True, slots=True)
class Search(SearchOptions):
    """A space at a scale.

    ``base`` and ``parameters``, the hyperparameters, are mapped by the scale; ``declared`` are the
    hyperparameters in the units of the space. All trials share the seed of ``base``, and no model
    has more than ``max_parameters`` parameters. ``defaults`` are the options of the classes that
    the space chooses among, as ``Class.option``; a trial has those of its own classes.
    """

    space: str
    title: str
    base: Config
    parameters: tuple[Hyperparameter, ...]
    declared: tuple[Hyperparameter, ...]
    max_parameters: int | None
    defaults: dict[str, Value] = field(default_factory=dict[str, Value])

    def __post_init__(self) -> None:
        if not 1 <= self.trials <= MOST:
            most = f" and at most {MOST:,}" if self.trials > 1 else ""
            raise InputError(f"--trials is {self.trials}, but must be at least 1{most}")

    @property
    def name(self) -> str:
        """The name under which it is tracked."""
        return f"{self.space}-{self.scale}"

    @property
    def names(self) -> tuple[str, ...]:
        """The names of its trials."""
        return tuple(map(trial_name, range(self.trials)))

    @property
    def measures(self) -> tuple[str, str]:
        """The scores of its trials; the first is the one by which they are compared."""
        return "perplexity", self.base.data.corpus.measure

    @property
    def rungs(self) -> tuple[int, ...]:
        """The steps at which trials may be pruned.

        The first one is the first validation after the space's longest warm-up, so that all trials
        are compared at the same steps and none during its warm-up.
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

    def describe_rungs(self) -> str:
        """A sentence that says where trials are pruned, or why none is."""
        warm_up = f"the longest warm-up that the space allows ({self.longest_warm_up:,})"
        if self.rungs:
            steps = ", ".join(f"{step:,}" for step in self.rungs)
            what = "Hyperband keeps about a third of the trials"
            if self.pruner == "median":
                what = "Trials worse than the median of the finished ones are pruned"
            return f"{what} after {warm_up}: at step {steps}."
        why = f"{warm_up} leaves no validation before the last step"
        return f"No trial is pruned: {'--pruner none' if self.pruner == 'none' else why}."

    def changes(self, values: Mapping[str, Value]) -> dict[str, Value]:
        """The settings that ``values`` change, with all options of the trial's classes."""
        given: dict[str, Value] = {}
        for parameter in self.parameters:
            if parameter.name in values:
                given |= dict.fromkeys(parameter.fields, values[parameter.name])
        if not self.defaults:
            return given
        configured = columns(with_changes(self.base, {**self.defaults, **given}))
        settings = {name: value for name, value in given.items() if not is_option(name)}
        options = {name: value for name, value in configured.items() if is_option(name)}
        return settings | options

    def declare(self, values: Mapping[str, Value]) -> dict[str, Value]:
        """The ``values`` in the units of the space."""
        found: dict[str, Value] = {}
        for scaled, declared in zip(self.parameters, self.declared, strict=True):
            if scaled.name in values:
                found[scaled.name] = scaled.declare(values[scaled.name], declared)
        return found

    def configure(self, values: Mapping[str, Value]) -> Config:
        """The base with these ``values``."""
        return with_changes(self.base, self.changes(values))

    def is_used(self, parameter: Hyperparameter, values: Mapping[str, Value]) -> bool:
        """Whether a trial with these ``values`` has the hyperparameter, by its classes."""
        if not is_option(parameter.name):
            return True
        ours = columns(self.base) | dict(values)
        classes = [class_name(str(ours[of])) for of in OPTIONS_OF]
        return parameter.name.partition(".")[0] in classes

    def is_feasible(self, values: Mapping[str, Value]) -> bool:
        """Whether these values make a valid model within the budget; warns if a variant refuses."""
        try:
            model = self.configure(values).model
        except InputError:
            return False
        try:
            size = count_parameters(model)  # builds the model if it is a variant
        except InputError as error:
            warnings.warn(f"not tried: {error}", stacklevel=2)
            return False
        return self.max_parameters is None or size <= self.max_parameters

    def values(self, config: Config) -> dict[str, Value]:
        """The hyperparameters' values in a configuration, without options of other classes."""
        found = columns(config)
        names = (parameter.name for parameter in self.parameters)
        return {name: found[name] for name in names if name in found}

    def contains(self, config: Config) -> bool:
        """Whether a configuration is the base with values from the space."""
        values = self.values(config)
        used = (each for each in self.parameters if each.name in values)
        held = all(parameter.holds(values[parameter.name]) for parameter in used)
        return held and self.configure(values).without_folders == config.without_folders

    def first(self) -> dict[str, Value]:
        """The values of the first trial: the base's, or none if the space does not contain it."""
        return self.values(self.base) if self.contains(self.base) else {}

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


def make_search(space: Space, scale: Scale, asked: SearchOptions) -> Search:
    """The search of ``space`` at ``scale``, by default with a validation each ninth of training."""
    base = scale.apply(override(space.base, seed=asked.seed))
    if "validate_every_steps" not in space.base.named:
        base = override(base, validate_every_steps=base.training.max_steps // _PARTS + 1)
    budget = space.budget
    search = Search(
        **asdict(replace(asked, scale=scale.name)),
        space=space.name,
        title=space.title,
        base=base,
        parameters=space.at(scale),
        declared=space.parameters,
        max_parameters=None if budget is None else int(budget * count_parameters(base.model)),
        defaults=_defaults(space),
    )
    # Checks the types of what the user's file declares, before anything is written.
    return from_dict(Search, to_dict(search), f"space {space.name!r}")


def _defaults(space: Space) -> dict[str, Value]:
    """The options of the classes that a space chooses among; the base's classes keep their own."""
    own = columns(space.base)
    found: dict[str, Value] = {}
    for name in space.classes:
        options = {option_name(name, option): value for option, value in resolve(name, {})}
        found |= {option: own.get(option, value) for option, value in options.items()}
    return found


def load_search(directory: Path) -> Search:
    """The search of a directory."""
    return from_dict(Search, read_json(directory / SEARCH_FILE), str(directory / SEARCH_FILE))


def settle_search(directory: Path, search: Search) -> Search:
    """``search`` as it continues the one in ``directory``, if there is one.

    It takes over its precision and threads, and has the larger number of trials.
    """
    found = load_search(directory) if (directory / SEARCH_FILE).is_file() else None
    search = replace(search, base=share_arithmetic(search.base, found and found.base))
    if found is None:
        return search
    check_same("search", directory, _identity(found), _identity(search))
    return replace(found, base=search.base, trials=max(found.trials, search.trials))


def claim_search(directory: Path, search: Search) -> Search:
    """Write ``search`` to ``directory``, or add its trials to the search there."""
    search = settle_search(directory, search)
    make_directory(directory)
    write_json(directory / SEARCH_FILE, to_dict(search))
    return search


def _identity(search: Search) -> dict[str, Any]:
    """The settings that must not change when a search is continued."""
    by_name = {parameter.name: to_dict(parameter) for parameter in search.parameters}
    may_change = dict.fromkeys(("declared", "trials", "title"))
    search = replace(search, base=search.base.without_folders)
    return to_dict(search) | {"parameters": by_name} | may_change
