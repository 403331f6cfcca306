"""One thing that a search varies: a setting, its bounds, and how a scale maps them."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Literal

from ablations.tables.scale import Scale
from ablations.tables.table3 import BASE
from transformer.config import TrainingConfig, override
from transformer.errors import InputError, unknown_name

Value = int | float | str

_MAPPED = ("num_layers", "d_model", "d_ff", "d_k", "d_v")
# Whatever changed the length of a run or the word-pieces that its perplexity counts would make
# trials incomparable.
SETTINGS = (
    *_MAPPED,
    "num_heads",
    "dropout",
    "positions",
    "warmup_steps",
    "learning_rate_factor",
    "schedule",
    "adam_beta1",
    "adam_beta2",
    "label_smoothing",
    "clip_norm",
)


@dataclass(frozen=True, kw_only=True, slots=True)
class Parameter:
    """The setting ``name``, and those in ``sets``, which take the same value.

    It is drawn from ``low`` to ``high``, both included, evenly or evenly in its logarithm; or it
    is one of ``choices``.

    Raises:
        InputError: for a setting that no search may vary, or bounds that leave nothing to search.
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
            if field not in SETTINGS:
                raise unknown_name("setting", field, SETTINGS)
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
        """Whether ``value`` may be drawn."""
        if self.kind == "choice":
            return value in self.choices
        return not isinstance(value, str) and self.low <= value <= self.high

    def at(self, scale: Scale) -> Parameter:
        """The parameter as it is run at ``scale``.

        Raises:
            InputError: for a value that the scale cannot map.
        """
        mapped = [self._map(value, scale) for value in self.bounds]
        if self.kind == "choice":
            return replace(self, choices=tuple(mapped))
        low, high = (value for value in mapped if not isinstance(value, str))
        return replace(self, low=low, high=high)

    def _map(self, value: Value, scale: Scale) -> Value:
        if self.name == "warmup_steps" and not isinstance(value, str):
            # Like the steps themselves: a share of the paper's 100,000.
            return max(1, round(value * scale.max_steps / TrainingConfig().max_steps))
        if self.name in _MAPPED:
            model = scale.apply(override(BASE, **{self.name: value})).model
            return getattr(model, self.name)
        return value


def uniform(name: str, low: float, high: float, *, log: bool = False) -> Parameter:
    """A setting from ``low`` to ``high``.

    Raises:
        InputError: for a setting that no search may vary, or an empty range.
    """
    return Parameter(name=name, kind="float", low=float(low), high=float(high), log=log)


def whole(name: str, low: int, high: int, *, log: bool = False) -> Parameter:
    """A setting that takes whole numbers, from ``low`` to ``high``.

    Raises:
        InputError: as :func:`uniform` does.
    """
    return Parameter(name=name, kind="int", low=low, high=high, log=log)


def choice(name: str, *choices: Value, sets: tuple[str, ...] = ()) -> Parameter:
    """A setting that takes one of a few values; the settings in ``sets`` take the same.

    Raises:
        InputError: for a setting that no search may vary, or fewer than two different values.
    """
    return Parameter(name=name, kind="choice", choices=choices, sets=sets)
