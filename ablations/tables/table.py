"""Declare an ablation table: rows that differ from one base.

docs/own-tables.md shows a file that does. Values are in the paper's units and are mapped by the
scale.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Unpack, cast

from ablations.files import check_name
from ablations.tables.changes import CHANGES, Changes, Value, check_change, class_changes
from ablations.tables.own_measures import Function, OwnMeasure
from ablations.tables.scale import Scale
from ablations.tables.tune import Tune
from transformer.config import Config
from transformer.errors import InputError

if TYPE_CHECKING:
    from transformer.model.encoder_decoder import Transformer
    from transformer.training.module import TransformerModule


@dataclass(frozen=True, slots=True)
class Reported:
    """A row's numbers in the paper, where it reports them."""

    perplexity: float | None = None
    bleu: float | None = None
    parameters_millions: int | None = None
    test_bleu: float | None = None
    test_f1: float | None = None
    flops: float | None = None


@dataclass(frozen=True, kw_only=True, slots=True)
class Row:
    """One row of a table, as :func:`row` makes it."""

    name: str
    reported: Reported
    changes: dict[str, Value]
    published: bool = False
    reference: str = ""


def row(
    name: str,
    perplexity: float | None = None,
    bleu: float | None = None,
    parameters_millions: int | None = None,
    /,
    *,
    test_bleu: float | None = None,
    test_f1: float | None = None,
    flops: float | None = None,
    model: type[Transformer] | str | None = None,
    options: Mapping[str, Value] | None = None,
    method: type[TransformerModule] | str | None = None,
    method_options: Mapping[str, Value] | None = None,
    published: bool = False,
    reference: str = "",
    **changes: Unpack[Changes],
) -> Row:
    """A row as the paper prints it: name, PPL, BLEU, parameters in millions, then the changes.

    Args:
        model: a variant: its class, or ``module:Class``, which is imported only when needed
        options: keyword-only arguments of ``model``; others keep their defaults
        method: how it is trained: a subclass of ``TransformerModule``, given in the same way
        method_options: keyword-only arguments of ``method``
        published: another author's system, listed with the paper's numbers and never run
        reference: what others found, in a word or two, such as "better"
        test_bleu: BLEU on the test set, as in Table 2
        test_f1: F1 on the test set, as in Table 4
        flops: training FLOPs, as in Table 2

    Raises:
        InputError: for an unknown change, one of the wrong type, or a name that no folder can have
    """
    if not published:
        check_name("row", name)
    found = cast(dict[str, Value], {**changes})
    try:
        for change, value in found.items():
            check_change("row", CHANGES, change, value)
        found |= class_changes("model", model, options)
        found |= class_changes("method", method, method_options)
    except InputError as error:
        raise InputError(f"row {name!r}: {error}") from error
    paper = Reported(perplexity, bleu, parameters_millions, test_bleu, test_f1, flops)
    return Row(name=name, reported=paper, changes=found, published=published, reference=reference)


def claim(
    name: str,
    found: str,
    model: str | None = None,
    method: str | None = None,
    options: Mapping[str, Value] | None = None,
    **changes: Unpack[Changes],
) -> Row:
    """A row with what its source ``found``, such as ``better``; empty if there is no source.

    Args:
        model: one of the project's variants as ``file:Class``, with ``options``
        method: one of the project's methods, named in the same way
    """
    return row(
        name,
        model=_full_name(model),
        options=options,
        method=_full_name(method),
        reference=found,
        **changes,
    )


def _full_name(variant: str | None) -> str | None:
    return None if variant is None else f"transformer.variants.{variant}"


@dataclass(frozen=True, kw_only=True, slots=True)
class Declaration:
    """A table or a search space around a base in the paper's units, with its own scales."""

    name: str
    title: str
    base: Config
    scales: tuple[Scale, ...] = ()


@dataclass(frozen=True, kw_only=True, slots=True)
class Table(Declaration):
    """Rows that differ from one base, in the paper's units.

    ``measures`` are the scores that it compares: names from ``experiments.records.result``, and the
    user's functions (:func:`ablations.tables.measure`). ``decoding_speed`` adds a column with the
    sentences decoded per second to its report. ``tune`` is the rule by which rows get their
    learning rates; None leaves them as declared.

    Raises:
        InputError: if there is no row to run, or two rows share a name
    """

    rows: tuple[Row, ...]
    measures: tuple[str | Function | OwnMeasure, ...] = ("perplexity", "bleu")
    decoding_speed: bool = False
    tune: Tune | None = None

    def __post_init__(self) -> None:
        check_name("table", self.name)
        if not self.run_rows:
            raise InputError(f'table {self.name!r} has no row to run: give rows=(row("base"), …)')
        # On a Mac, folders a and A are the same.
        name, count = Counter(row.name.lower() for row in self.rows).most_common(1)[0]
        if count > 1:
            raise InputError(f"table {self.name!r} has two rows named {name!r}")

    @property
    def run_rows(self) -> tuple[Row, ...]:
        """The rows that can be run: all but published systems."""
        return tuple(row for row in self.rows if not row.published)

    def configure(self, row: Row | None, scale: Scale) -> Config:
        """The configuration of ``row``, or of the base, at ``scale``."""
        try:
            return scale.apply(self.base, row.changes if row else {})
        except InputError as error:
            who = f"row {row.name!r} of {self.name!r}" if row else f"the base of {self.name!r}"
            raise InputError(f"{who} at scale {scale.name!r}: {error}") from error


@dataclass(frozen=True, order=True, slots=True)
class Cell:
    """One run of a table: a row and a seed."""

    row: str
    seed: int

    def __str__(self) -> str:
        return f"{self.row}/seed-{self.seed}"

    def directory(self, root: Path) -> Path:
        """The run's directory inside the table's."""
        return root / self.row / f"seed-{self.seed}"
