"""What an ablation table is: rows that differ from one base, and scales that fit it to a machine.

A table of your own is one small file::

    from ablations.table import Table, row
    from ablations.table3 import BASE

    TABLE = Table(
        name="depth",
        title="Narrow and deep",
        base=BASE,
        rows=(
            row("base"),
            row("deep", num_layers=12, d_model=256, d_k=32, d_v=32),
        ),
    )

``python -m ablations run depth.py --scale quick`` trains it. Values are in the paper's units, and
the scale maps them; ``scales=(scale("mine", …),)`` adds a scale with a corpus of your own.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TypedDict, Unpack, cast

from transformer.config import Config, Corpus, Positions, Precision, TrainingConfig, override
from transformer.errors import InputError, unknown_name

_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]*")
_PAPER_STEPS = TrainingConfig().max_steps


class Changes(TypedDict, total=False):
    """What a row may change: the columns of Table 3, with the positions of row E."""

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


class Settings(TypedDict, total=False):
    """What a scale may set for all rows alike, beyond its corpus, widths, depth and steps."""

    vocab_size: int
    max_positions: int
    tokens_per_batch: int
    max_length: int
    warmup_steps: int
    learning_rate_factor: float
    adam_beta2: float
    clip_norm: float | None
    precision: Precision
    average_checkpoints: int
    checkpoint_every_steps: int
    validate_every_steps: int
    log_every_steps: int


CHANGES: tuple[str, ...] = tuple(Changes.__annotations__)


@dataclass(frozen=True, kw_only=True, slots=True)
class Reported:
    """A row's figures in the paper, None where it gives none."""

    perplexity: float | None = None
    bleu: float | None = None
    parameters_millions: int | None = None


@dataclass(frozen=True, kw_only=True, slots=True)
class Row:
    """One line of a table: what differs from the base, in the paper's units, and nothing else."""

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
        InputError: for a change that no table has, or a name that cannot be a folder's.
    """
    _check_name("row", name)
    for change in changes:
        if change not in CHANGES:
            raise unknown_name("setting", change, CHANGES)
    reported = Reported(perplexity=perplexity, bleu=bleu, parameters_millions=parameters_millions)
    return Row(name=name, reported=reported, changes=changes)


@dataclass(frozen=True, kw_only=True, slots=True)
class Scale:
    """A mapping from the paper's units to what fits a machine.

    ``d_model``, ``d_ff``, ``d_k`` and ``d_v`` are divided by ``divide_widths`` and N by
    ``divide_layers``; h stays. ``max_steps`` is for a row that takes the paper's 100,000, and
    others are scaled in proportion.
    """

    name: str
    corpus: Corpus
    divide_widths: int
    divide_layers: int
    max_steps: int
    settings: Settings

    def apply(self, config: Config) -> Config:
        """The configuration that is run in place of ``config``.

        Raises:
            InputError: where a width or the depth cannot be divided without a remainder.
        """
        model = config.model
        return override(
            config,
            corpus=self.corpus,
            num_layers=_divide("num_layers", model.num_layers, self.divide_layers),
            **{
                name: _divide(name, getattr(model, name), self.divide_widths)
                for name in ("d_model", "d_ff", "d_k", "d_v")
            },
            max_steps=max(1, config.training.max_steps * self.max_steps // _PAPER_STEPS),
            **self.settings,
        )


def scale(
    name: str,
    *,
    corpus: Corpus,
    divide_widths: int = 1,
    divide_layers: int = 1,
    max_steps: int = _PAPER_STEPS,
    **settings: Unpack[Settings],
) -> Scale:
    """A scale; without any further argument than the corpus it is the identity.

    Raises:
        InputError: for a setting that a scale does not have.
    """
    _check_name("scale", name)
    for setting in settings:
        if setting not in Settings.__annotations__:
            raise unknown_name("setting", setting, Settings.__annotations__)
    return Scale(
        name=name,
        corpus=corpus,
        divide_widths=divide_widths,
        divide_layers=divide_layers,
        max_steps=max_steps,
        settings=settings,
    )


@dataclass(frozen=True, kw_only=True, slots=True)
class Table:
    """Rows over one base, whose configuration is in the paper's units.

    ``scales`` come beside the built-in ones of :mod:`ablations.scales`.

    Raises:
        InputError: if two rows share a name, or a row's changes make no valid configuration.
    """

    name: str
    title: str
    base: Config
    rows: tuple[Row, ...]
    scales: tuple[Scale, ...] = ()

    def __post_init__(self) -> None:
        _check_name("table", self.name)
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
        """Where the run lives below the table's directory."""
        return root / self.row / f"seed-{self.seed}"


def _divide(name: str, value: int, divisor: int) -> int:
    if value % divisor:
        raise InputError(f"{name} is {value}, which the scale cannot divide by {divisor}")
    return value // divisor


def _check_name(kind: str, name: str) -> None:
    if not _NAME.fullmatch(name):
        raise InputError(f"{kind} name {name!r} may hold letters, digits, '.', '_' and '-' only")
