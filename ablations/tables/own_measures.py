"""A table's measures that are the user's functions."""

from __future__ import annotations

import inspect
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, fields
from typing import TypeAlias

from experiments.records.result import MEASURES, Measure, Result, score_key
from transformer.config import config_fields
from transformer.errors import InputError
from transformer.variant import split_name, variant_name

_COLUMNS = ("row", "state", "target_language")  # of results.csv, besides settings and scores
# A function of sources, translations and references, each a list of lines.
Function: TypeAlias = Callable[[list[str], list[str], list[str]], float]


@dataclass(frozen=True, kw_only=True, slots=True)
class OwnMeasure:
    """A user's score of the validation set's translations.

    ``function`` is its name with the module and a digest of the source, ``label`` its name in
    reports, ``digits`` its decimals there.
    """

    function: str
    label: str
    higher_is_better: bool = True
    digits: int = 2

    def __post_init__(self) -> None:
        if not 0 <= self.digits <= 9 or not self.label.strip():
            raise InputError(f"measure {self.name!r} needs a label, and 0 to 9 digits")
        columns = {*_COLUMNS, *config_fields(), *(field.name for field in fields(Result))}
        if self.name in MEASURES or self.name in columns:
            raise InputError(f"a measure of your own cannot be called {self.name}: rename it")

    @property
    def name(self) -> str:
        """The function's own name."""
        return split_name(self.function)[1]

    @property
    def measure(self) -> Measure:
        """The measure in the form of the built-in ones."""
        return Measure(
            name=self.name,
            label=self.label,
            short=self.label,
            digits=self.digits,
            paper_digits=self.digits,
            direction="maximize" if self.higher_is_better else "minimize",
            scale=(-math.inf, math.inf),
            key=score_key(self.function),
        )


def measure(
    function: Function | str,
    label: str | None = None,
    *,
    higher_is_better: bool = True,
    digits: int = 2,
) -> OwnMeasure:
    """A measure for ``measures=`` of a table: ``measure(comet, "COMET", digits=4)``.

    Args:
        function: takes sources, translations and references, three lists of lines, and returns a
            number; given as ``module:function``, it is imported only when it is needed
        label: its name in reports [default: the function's name]

    Raises:
        InputError: if there is no such function, or it does not take three arguments
    """
    if not isinstance(function, str):
        try:
            inspect.signature(function).bind([], [], [])
        except (TypeError, ValueError) as error:
            raise InputError(
                f"measure {function!r} must take sources, translations and references: {error}"
            ) from error
    name = variant_name(function)
    return OwnMeasure(
        function=name,
        label=label or split_name(name)[1],
        higher_is_better=higher_is_better,
        digits=digits,
    )


def split_measures(
    measures: Sequence[str | Function | OwnMeasure],
) -> tuple[tuple[str, ...], tuple[OwnMeasure, ...]]:
    """The names of a table's measures, and the measures that are the user's own."""
    names: list[str] = []
    own: list[OwnMeasure] = []
    for found in measures:
        if isinstance(found, str) and ":" not in found:
            names.append(found)
            continue
        own.append(found if isinstance(found, OwnMeasure) else measure(found))
        names.append(own[-1].name)
    return tuple(names), tuple(own)
