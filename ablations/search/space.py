"""Declare a search space.

A space of your own is one small file::

    from ablations.search import Space, choice, uniform

    SPACE = Space(
        name="smoothing",
        title="Label smoothing and width",
        parameters=(
            uniform("label_smoothing", 0.0, 0.3),
            choice("d_ff", 1024, 2048, 4096),
        ),
    )

``python -m ablations search smoothing.py --scale quick --trials 40`` searches it. Values are in
the paper's units and are mapped by the scale, like those of a table's row; the warm-up too.
``scales=(scale("mine", …),)`` adds a scale with a corpus of your own, see
:mod:`ablations.tables.scale`.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Literal

from ablations.files import check_name
from ablations.tables.changes import CHANGES, Value, check_change
from ablations.tables.scale import MAPPED, Scale
from ablations.tables.table3 import BASE
from transformer.config import Config, TrainingConfig, override
from transformer.errors import InputError
from transformer.variant import class_name, variant_name

if TYPE_CHECKING:
    from transformer.model.encoder_decoder import Transformer

# Trials are compared at the same steps, by perplexity on the same word-pieces, rounded alike.
_SHARED = (
    "max_steps",
    "validate_every_steps",
    "log_every_steps",
    "vocab_size",
    "target_language",
    "precision",
    "threads",
)
# What perplexity does not depend on.
_OF_DECODING = ("beam_size", "length_penalty", "max_extra_length", "also_average")
SETTINGS = {x: kind for x, kind in CHANGES.items() if x not in (*_SHARED, *_OF_DECODING)}


@dataclass(frozen=True, kw_only=True, slots=True)
class Parameter:
    """A setting that is searched; the settings in ``sets`` take the same value.

    It is drawn uniformly (with ``log``, log-uniformly) from ``low`` to ``high`` inclusive, or from
    ``choices``.

    Raises:
        InputError: for a setting that cannot be searched, or bounds with nothing between them.
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
            if field in _OF_DECODING:
                raise InputError(
                    f"a search cannot vary {field}, which does not change the perplexity that it "
                    "compares: score a finished run with evaluate"
                )
            for value in self.bounds:
                check_change("search", SETTINGS, field, value)
        if self.kind == "choice":
            if len(set(self.choices)) < max(2, len(self.choices)):
                raise InputError(f"{self.name} needs two choices or more, and none of them twice")
        elif not self.low < self.high:
            raise InputError(f"{self.name} goes from {self.low} to {self.high}: nothing to search")
        elif self.log and self.low <= 0:
            raise InputError(f"{self.name} begins at {self.low}, which has no logarithm")

    @property
    def fields(self) -> tuple[str, ...]:
        """The settings that take its value."""
        return (self.name, *self.sets)

    @property
    def bounds(self) -> tuple[Value, ...]:
        """The choices, or both ends of the range."""
        return self.choices or (self.low, self.high)

    def holds(self, value: Value) -> bool:
        """Whether ``value`` is within the bounds."""
        if self.kind == "choice":
            return value in self.choices
        return isinstance(value, (int, float)) and self.low <= value <= self.high

    def at(self, scale: Scale) -> Parameter:
        """The parameter with its bounds mapped by ``scale``."""
        mapped = [self._map(value, scale) for value in self.bounds]
        if self.kind == "choice":
            return replace(self, choices=tuple(mapped))
        low, high = (value for value in mapped if isinstance(value, (int, float)))
        return replace(self, low=low, high=high)

    def shown(self) -> Parameter:
        """The parameter as reports show it, variants of the model by their classes."""
        if self.name != "model":
            return self
        names = (class_name(str(value)) if value else "the paper's" for value in self.choices)
        return replace(self, choices=tuple(names))

    def unmapped(self, value: Value, declared: Parameter) -> Value:
        """The ``value`` in the units of ``declared``, of which this is the parameter at a scale."""
        if value in self.choices:
            return declared.choices[self.choices.index(value)]
        ours, theirs = self.bounds[-1], declared.bounds[-1]
        if ours == theirs or isinstance(value, str) or isinstance(ours, str):
            return value
        if not (value and ours and isinstance(theirs, (int, float))):
            return value
        found = value * theirs / ours
        return round(found) if isinstance(theirs, int) else found

    def _map(self, value: Value, scale: Scale) -> Value:
        if self.name == "warmup_steps" and isinstance(value, (int, float)):
            # Scaled like the steps, which are 100,000 in the paper.
            return max(1, round(value * scale.max_steps / TrainingConfig().max_steps))
        if self.name in MAPPED:
            model = scale.apply(override(BASE, **{self.name: value})).model
            return getattr(model, self.name)
        return value


def uniform(name: str, low: float, high: float, *, log: bool = False) -> Parameter:
    """A real number from ``low`` to ``high``.

    Raises:
        InputError: for a setting that cannot be searched, or an empty range.
    """
    return Parameter(name=name, kind="float", low=float(low), high=float(high), log=log)


def whole(name: str, low: int, high: int, *, log: bool = False) -> Parameter:
    """A whole number from ``low`` to ``high``.

    Raises:
        InputError: for a setting that cannot be searched, or an empty range.
    """
    return Parameter(name=name, kind="int", low=low, high=high, log=log)


def choice(name: str, *choices: Value | type[Transformer], sets: tuple[str, ...] = ()) -> Parameter:
    """One of a few values; the settings in ``sets`` take the same one.

    For ``model`` they are variants, as for a table's row, and None for the paper's.

    Raises:
        InputError: for a setting that cannot be searched, or fewer than two different values.
    """
    values = tuple(
        variant_name(x) if isinstance(x, type) or (name == "model" and isinstance(x, str)) else x
        for x in choices
    )
    return Parameter(name=name, kind="choice", choices=values, sets=sets)


@dataclass(frozen=True, kw_only=True, slots=True)
class Space:
    """Parameters around a base, the paper's if it is not given, in the paper's units.

    A ``budget`` limits the size of models, as a multiple of the base's parameters at the same
    scale. ``scales`` are added to the built-in ones of :mod:`ablations.tables.scales`.

    Raises:
        InputError: if two parameters set the same field, or a bound makes no valid model.
    """

    name: str
    title: str
    parameters: tuple[Parameter, ...]
    base: Config = BASE
    budget: float | None = None
    scales: tuple[Scale, ...] = ()

    def __post_init__(self) -> None:
        check_name("space", self.name)
        fields = [field for parameter in self.parameters for field in parameter.fields]
        if not fields:
            raise InputError(f"space {self.name!r} has no parameters")
        for field in fields:
            if fields.count(field) > 1:
                raise InputError(f"space {self.name!r} sets {field!r} twice")
        if self.budget is not None and not self.budget > 0:
            raise InputError(f"space {self.name!r}: budget is {self.budget}, but must be above 0")
        # Whether a batch holds the longest pair depends on the scale, which may shorten both.
        self._check(self.parameters, override(self.base, max_length=2), "")

    def at(self, scale: Scale) -> tuple[Parameter, ...]:
        """The parameters with their bounds mapped by ``scale``."""
        where = f" at scale {scale.name!r}"
        try:
            parameters = tuple(parameter.at(scale) for parameter in self.parameters)
        except InputError as error:
            raise InputError(f"space {self.name!r}{where}: {error}") from error
        self._check(parameters, scale.apply(self.base), where)
        return parameters

    def _check(self, parameters: tuple[Parameter, ...], base: Config, where: str) -> None:
        """Check each bound by itself."""
        for parameter in parameters:
            for value in parameter.bounds:
                try:
                    override(base, **dict.fromkeys(parameter.fields, value))
                except (InputError, TypeError) as error:
                    raise InputError(f"space {self.name!r}{where}: {error}") from error
