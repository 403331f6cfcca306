"""What a search space is: the settings that a search varies, and in which bounds.

A space of your own is one small file::

    from ablations.search.space import Space, choice, uniform

    SPACE = Space(
        name="smoothing",
        title="Label smoothing and width",
        parameters=(
            uniform("label_smoothing", 0.0, 0.3),
            choice("d_ff", 1024, 2048, 4096),
        ),
    )

``python -m ablations search smoothing.py --scale quick --trials 20`` searches it. Values are in
the paper's units and the scale maps them, as those of a table's row. ``scales=(scale("mine", …),)``
adds a scale with a corpus of your own, see :mod:`ablations.tables.scale`.
"""

from __future__ import annotations

from dataclasses import dataclass

from ablations.search.parameter import Parameter, Value, choice, uniform, whole
from ablations.tables.names import check_name
from ablations.tables.scale import Scale
from ablations.tables.table3 import BASE
from transformer.config import Config, override
from transformer.errors import InputError

__all__ = ["Space", "Value", "choice", "uniform", "whole"]


@dataclass(frozen=True, kw_only=True, slots=True)
class Space:
    """Parameters around the paper's base model, in the paper's units.

    With a ``budget`` only models are tried that have at most so many times the parameters of the
    base at the same scale. ``scales`` come beside the built-in ones of :mod:`ablations.tables.scales`.

    Raises:
        InputError: if two parameters set the same, or one takes a value that no model can.
    """

    name: str
    title: str
    parameters: tuple[Parameter, ...]
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
        self._check(self.parameters, BASE, "")

    def at(self, scale: Scale) -> tuple[Parameter, ...]:
        """The parameters as they are run at ``scale``.

        Raises:
            InputError: for a value that the scale cannot map; it is named.
        """
        where = f" at scale {scale.name!r}"
        try:
            parameters = tuple(parameter.at(scale) for parameter in self.parameters)
        except InputError as error:
            raise InputError(f"space {self.name!r}{where}: {error}") from error
        self._check(parameters, scale.apply(BASE), where)
        return parameters

    def _check(self, parameters: tuple[Parameter, ...], base: Config, where: str) -> None:
        """Try each bound by itself."""
        for parameter in parameters:
            for value in parameter.bounds:
                try:
                    override(base, **dict.fromkeys(parameter.fields, value))
                except (InputError, TypeError) as error:
                    raise InputError(f"space {self.name!r}{where}: {error}") from error
