"""Declare an ablation table: rows that differ from one base.

A table of your own is one small file::

    from ablations.tables import BASE, Table, row

    TABLE = Table(
        name="depth",
        title="Narrow and deep",
        base=BASE,
        rows=(
            row("base"),
            row("deep", num_layers=12, d_model=256, d_k=32, d_v=32),
        ),
    )

``python -m ablations run depth.py --scale quick`` trains it. Values are in the paper's units and
are mapped by the scale. ``scales=(scale("mine", …),)`` adds a scale with a corpus of your own, see
:mod:`ablations.tables.scale`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TypedDict, Unpack, cast, get_type_hints

from ablations.files import OWN_FILES, check_name
from ablations.tables.scale import Scale
from transformer.config import Config, Positions, override
from transformer.errors import InputError, unknown_name


class Changes(TypedDict, total=False):
    """What a row may change: the columns of Table 3, and the positions of row E."""

    num_layers: int
    d_model: int
    d_ff: int
    num_heads: int
    d_k: int
    d_v: int
    dropout: float
    label_smoothing: float
    positions: Positions
    max_steps: int


CHANGES: tuple[str, ...] = tuple(Changes.__annotations__)
_TYPES: dict[str, object] = get_type_hints(Changes)
_KINDS: dict[object, tuple[tuple[type, ...], str]] = {
    int: ((int,), "a whole number"),
    float: ((int, float), "a number"),
}


@dataclass(frozen=True, kw_only=True, slots=True)
class Reported:
    """A row's figures in the paper; None if it gives none."""

    perplexity: float | None = None
    bleu: float | None = None
    parameters_millions: int | None = None


@dataclass(frozen=True, kw_only=True, slots=True)
class Row:
    """One row of a table: what differs from the base, in the paper's units."""

    name: str
    reported: Reported
    changes: Changes


def row(
    name: str,
    perplexity: float | None = None,
    bleu: float | None = None,
    parameters_millions: int | None = None,
    /,
    **changes: Unpack[Changes],
) -> Row:
    """A row as the paper prints it: name, PPL, BLEU, parameters in millions, then the changes.

    Raises:
        InputError: for an unknown change or one of the wrong type, or a name that cannot be a
            folder's.
    """
    check_name("row", name)
    if name.lower() in OWN_FILES:
        raise InputError(f"row name {name!r} is the name of a file of the table: choose another")
    for change, value in changes.items():
        if change not in CHANGES:
            raise unknown_name("setting", change, CHANGES)
        _check_type(name, change, value)
    reported = Reported(perplexity=perplexity, bleu=bleu, parameters_millions=parameters_millions)
    return Row(name=name, reported=reported, changes=changes)


def _check_type(row: str, change: str, value: object) -> None:
    kinds, words = _KINDS.get(_TYPES[change], ((str,), "a string"))
    if not isinstance(value, kinds) or isinstance(value, bool):
        raise InputError(f"row {row!r}: {change} is {value!r}, but must be {words}")


@dataclass(frozen=True, kw_only=True, slots=True)
class Table:
    """Rows that differ from one base, whose configuration is in the paper's units.

    ``scales`` are added to the built-in ones of :mod:`ablations.tables.scales`.

    Raises:
        InputError: if there is no row, two rows share a name, or a row makes no valid
            configuration.
    """

    name: str
    title: str
    base: Config
    rows: tuple[Row, ...]
    scales: tuple[Scale, ...] = ()

    def __post_init__(self) -> None:
        check_name("table", self.name)
        if not self.rows:
            raise InputError(f'table {self.name!r} has no rows: give it rows=(row("base"), …)')
        names = [row.name for row in self.rows]
        for name in names:
            if names.count(name) > 1:
                raise InputError(f"table {self.name!r} has two rows named {name!r}")
        for row in self.rows:
            self.configure(row)

    def configure(self, row: Row, scale: Scale | None = None) -> Config:
        """The configuration of ``row`` at ``scale``, or in the paper's units without one."""
        try:
            config = override(self.base, **cast(Mapping[str, object], row.changes))
            return config if scale is None else scale.apply(config)
        except InputError as error:
            where = "" if scale is None else f" at scale {scale.name!r}"
            raise InputError(f"row {row.name!r} of {self.name!r}{where}: {error}") from error


@dataclass(frozen=True, order=True, slots=True)
class Cell:
    """One run of a table: a row and a seed."""

    row: str
    seed: int

    def __str__(self) -> str:
        return f"{self.row}/seed-{self.seed}"

    def directory(self, root: Path) -> Path:
        """The run's directory in that of the table."""
        return root / self.row / f"seed-{self.seed}"
