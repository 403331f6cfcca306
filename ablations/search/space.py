"""Declare a search space.

docs/search.md shows a file that does. Values, including the warm-up's, are in the paper's units and
are mapped by the scale, like those of a table's row.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Literal

from ablations.files import check_name
from ablations.tables import table4
from ablations.tables.changes import CHANGES, Value, check_change, columns, is_option
from ablations.tables.find import load_declared
from ablations.tables.scale import Scale
from ablations.tables.table import Declaration
from ablations.tables.table3 import BASE
from transformer.config import OPTIONS_OF, Config
from transformer.errors import InputError
from transformer.parameters import resolve
from transformer.variant import class_name, variant_name

if TYPE_CHECKING:
    from transformer.model.encoder_decoder import Transformer
    from transformer.training.module import TransformerModule

# Settings that cannot be searched: trials are compared at the same steps, by perplexity on the same
# word-pieces, with the same rounding; and perplexity does not depend on decoding.
_SHARED = (
    *("max_steps", "validate_every_steps", "log_every_steps", "precision", "threads"),
    *("vocab_size", "target_language"),
    *("beam_size", "length_penalty", "max_extra_length", "also_average"),
)
SETTINGS = {name: kind for name, kind in CHANGES.items() if name not in _SHARED}


@dataclass(frozen=True, kw_only=True, slots=True)
class Hyperparameter:
    """A setting to search, or an option of a class that the space chooses, as ``Class.option``.

    The settings in ``sets`` take the same value. It is drawn from ``choices``, or else uniformly
    (with ``log``, log-uniformly) from ``low`` to ``high`` inclusive.

    Raises:
        InputError: for a setting that cannot be searched, an empty range or fewer than two choices
    """

    name: str
    kind: Literal["float", "int", "choice"]
    low: int | float = 0
    high: int | float = 0
    log: bool = False
    choices: tuple[Value, ...] = ()
    sets: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        for field in self.fields:
            if is_option(field):  # its space checks it
                continue
            for value in self.bounds:
                check_change("search", SETTINGS, field, value)
        if self.kind == "choice":
            if len(set(self.choices)) < max(2, len(self.choices)):
                raise InputError(f"{self.name} needs two or more choices, all different")
        elif not self.low < self.high or (self.log and self.low <= 0):
            above = " above 0, as it is logarithmic" if self.log else ""
            raise InputError(f"{self.name} needs a range{above}, not {self.low} to {self.high}")

    @property
    def fields(self) -> tuple[str, ...]:
        """The settings that take the value."""
        return (self.name, *self.sets)

    @property
    def bounds(self) -> tuple[Value, ...]:
        """The choices, or both ends of the range."""
        return self.choices or (self.low, self.high)

    def holds(self, value: Value) -> bool:
        if self.kind == "choice":
            return value in self.choices
        return isinstance(value, (int, float)) and self.low <= value <= self.high

    def at(self, scale: Scale, base: Config) -> Hyperparameter:
        """The hyperparameter at a scale: bounds are mapped like a row's settings, and a warm-up
        like steps.
        """
        if is_option(self.name):
            return self
        mapped: list[Value] = []
        for value in self.bounds:
            if self.name == "warmup_steps" and isinstance(value, int):
                value = scale.steps(value)
            found = columns(scale.apply(base, dict.fromkeys(self.fields, value)))
            if len({found[field] for field in self.fields}) > 1:
                raise InputError(
                    f"the scale maps {self.name} and {', '.join(self.sets)} differently"
                )
            mapped.append(found[self.name])
        if self.kind == "choice":
            return replace(self, choices=tuple(mapped))
        low, high = (value for value in mapped if isinstance(value, (int, float)))
        return replace(self, low=low, high=high)

    def declare(self, value: Value, declared: Hyperparameter) -> Value:
        """A value in the units of the space, in which the hyperparameter is ``declared``.

        What is no choice is divided as the bounds are, by the last of them that is not 0.
        """
        if value in self.choices:
            return declared.choices[self.choices.index(value)]
        ratios = [
            theirs / ours
            for ours, theirs in zip(self.bounds, declared.bounds, strict=True)
            if isinstance(ours, (int, float)) and isinstance(theirs, (int, float)) and ours
        ]
        if isinstance(value, (str, type(None))) or not ratios:
            return value
        in_space = value * ratios[-1]
        return round(in_space) if isinstance(value, int) else in_space


def uniform(name: str, low: float, high: float, *, log: bool = False) -> Hyperparameter:
    """A real number from ``low`` to ``high``."""
    return Hyperparameter(name=name, kind="float", low=float(low), high=float(high), log=log)


def whole(name: str, low: int, high: int, *, log: bool = False) -> Hyperparameter:
    """A whole number from ``low`` to ``high``."""
    return Hyperparameter(name=name, kind="int", low=low, high=high, log=log)


def choice(
    name: str,
    *choices: Value | type[Transformer] | type[TransformerModule],
    sets: tuple[str, ...] = (),
) -> Hyperparameter:
    """One of a few values; the settings in ``sets`` take the same value.

    The choices of ``model`` and ``method`` are classes, as in a table's row, or None for the
    paper's.
    """
    values: list[Value] = []
    for value in choices:
        if isinstance(value, type) or (name in OPTIONS_OF and isinstance(value, str)):
            value = variant_name(value)
        values.append(value)
    return Hyperparameter(name=name, kind="choice", choices=tuple(values), sets=sets)


@dataclass(frozen=True, kw_only=True, slots=True)
class Space(Declaration):
    """Hyperparameters to search (``parameters``) around a base, in the paper's units.

    The base is the paper's if it is not given. A ``budget`` limits the size of models, as a
    multiple of the base's number of parameters at the scale.

    Raises:
        InputError: if there are no hyperparameters, two set the same field, one is an option of no
            class of the space, or the budget is not above 0
    """

    parameters: tuple[Hyperparameter, ...]
    base: Config = BASE
    budget: float | None = None

    def __post_init__(self) -> None:
        check_name("space", self.name)
        fields = [field for parameter in self.parameters for field in parameter.fields]
        if not fields or len(set(fields)) < len(fields):
            raise InputError(f"space {self.name!r} needs parameters, each of them only once")
        for parameter in self.parameters:
            self._check_option(parameter)
        if self.budget is not None and not 0 < self.budget < math.inf:
            raise InputError(f"space {self.name!r}: budget is {self.budget}, but must be above 0")

    @property
    def classes(self) -> tuple[str, ...]:
        """The classes that the space chooses among, and the base's."""
        found = [columns(self.base)[of] for of in OPTIONS_OF]
        for parameter in self.parameters:
            if parameter.name in OPTIONS_OF:
                found += parameter.choices
        return tuple(dict.fromkeys(str(name) for name in found if name is not None))

    def _check_option(self, parameter: Hyperparameter) -> None:
        """Check the name and the bounds of a hyperparameter that is an option of a class."""
        if not is_option(parameter.name):
            return
        kind, _, name = parameter.name.partition(".")
        named = {class_name(each): each for each in self.classes}
        if parameter.sets or kind not in named:
            raise InputError(
                f"space {self.name!r}: {parameter.name} is not an option of a class it chooses: "
                f'add choice("model", None, {kind}) or choice("method", None, {kind})'
            )
        for value in parameter.bounds:
            resolve(named[kind], {name: value})

    def at(self, scale: Scale) -> tuple[Hyperparameter, ...]:
        try:
            return tuple(parameter.at(scale, self.base) for parameter in self.parameters)
        except InputError as error:
            raise InputError(f"space {self.name!r} at scale {scale.name!r}: {error}") from error


# The bounds include what the built-in scales set, with room on either side.
BASE_LR = Space(
    name="base_lr",
    title="Learning rate and warm-up",
    parameters=(
        uniform("learning_rate_factor", 0.1, 4.0, log=True),
        whole("warmup_steps", 500, 40_000, log=True),
    ),
)

REGULARISATION = Space(
    name="regularisation",
    title="Dropout and label smoothing",
    parameters=(
        uniform("dropout", 0.0, 0.4),
        uniform("label_smoothing", 0.0, 0.3),
    ),
)

# Rows (A) to (C) of Table 3 vary the same settings, but one at a time and at any size.
SHAPE = Space(
    name="shape",
    title="Depth, widths and heads within the base's number of parameters",
    parameters=(
        choice("num_layers", 2, 4, 6, 8),
        choice("d_model", 256, 384, 512, 640, 768),
        choice("d_ff", 512, 1024, 2048, 3072, 4096),
        choice("num_heads", 1, 2, 4, 8, 16),
        choice("d_k", 16, 32, 64, 128, sets=("d_v",)),
    ),
    budget=1.0,
)

# What the paper tuned for parsing (section 6.3), except the beam: see evaluate --beam-size.
PARSING = Space(
    name="parsing",
    title="Dropout and learning rate of a parser",
    parameters=(
        uniform("dropout", 0.0, 0.5),
        uniform("learning_rate_factor", 0.1, 4.0, log=True),
    ),
    base=table4.TABLE.base,
    scales=table4.SCALES,
)

SPACES = {space.name: space for space in (BASE_LR, REGULARISATION, SHAPE, PARSING)}


def load_space(name: str) -> Space:
    """The space of that name, or the ``SPACE`` of a file such as ``path/to/smoothing.py``."""
    return load_declared(Space, name, SPACES)
