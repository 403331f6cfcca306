"""A scale, which fits a table to a machine."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Unpack, cast

from ablations.files import check_name
from ablations.tables.changes import (
    SCALE_SETTINGS,
    Settings,
    Value,
    check_change,
    columns,
    with_changes,
)
from experiments.catalog.own_text import Amount
from transformer.config import Config, ModelConfig, TrainingConfig
from transformer.corpus import Corpus
from transformer.data.corpora.declared import WMT14_EN_DE
from transformer.errors import InputError
from transformer.fields import fits
from transformer.parsing.treebanks import PENN

_PAPER_STEPS, _PAPER_PIECES = TrainingConfig().max_steps, ModelConfig().vocab_size
_WIDTHS = ("d_model", "d_ff", "d_k", "d_v")


@dataclass(frozen=True, kw_only=True, slots=True)
class Divisors:
    """The numbers by which a scale divides the paper's sizes."""

    divide_widths: int = 1
    divide_layers: int = 1
    divide_dropout: int = 1

    @property
    def division(self) -> str:
        """The divisors in words, such as ``widths / 8, N / 2``."""
        divisors = (self.divide_widths, self.divide_layers, self.divide_dropout)
        named = zip(("widths", "N", "dropout"), divisors, strict=True)
        divided = [f"{name} / {divisor}" for name, divisor in named if divisor > 1]
        return ", ".join(divided) or "sizes undivided"


@dataclass(frozen=True, kw_only=True, slots=True)
class Scale(Divisors):
    """A mapping from the paper's units to what fits a machine.

    ``d_model``, ``d_ff``, ``d_k`` and ``d_v`` are divided by ``divide_widths``, N by
    ``divide_layers`` and P_drop by ``divide_dropout``; h is kept. ``max_steps`` replaces the
    paper's 100,000 steps, and other numbers of steps are scaled in proportion. ``settings`` apply
    to every field that neither the table's base (by :func:`override`) nor the row names. Rows with
    more steps than the paper's base also take ``longer``, and rows in another language ``other``;
    both override ``settings``. ``note`` says why the scale was chosen, if not by the user.

    Raises:
        InputError: for an unknown setting, or one of the wrong type
    """

    name: str
    corpus: Corpus
    max_steps: int
    settings: Settings
    longer: Settings
    other_corpora: tuple[Corpus, ...] = ()
    other: Settings
    note: str = ""

    def __post_init__(self) -> None:
        check_name("scale", self.name)
        if not all(fits(corpus, Corpus) for corpus in (self.corpus, *self.other_corpora)):
            raise InputError(f"scale {self.name!r} needs a corpus=Corpus(…), not its name")
        for name in ("divide_widths", "divide_layers", "divide_dropout", "max_steps"):
            value = getattr(self, name)
            if not fits(value, int) or value < 1:
                raise InputError(f"{name} is {value!r}, but must be a whole number above 0")
        for settings in (self.settings, self.longer, self.other):
            for name, value in settings.items():
                check_change("scale", SCALE_SETTINGS, name, value)

    def on(self, corpus: Corpus, amount: Amount, note: str) -> Scale:
        """The scale on the user's text, with a smaller vocabulary if the text is small.

        Its name includes the text's, as directories of runs are named after scales.
        """
        pair = f"{corpus.source_language}-{corpus.target_language}"
        pieces = amount.word_pieces(self.settings.get("vocab_size", _PAPER_PIECES))
        return replace(
            self,
            name=re.sub(r"[^A-Za-z0-9_-]+", "-", f"{self.name}-{corpus.name}-{pair}"),
            corpus=corpus,
            other_corpora=(),
            settings={**self.settings, "vocab_size": pieces},
            note=f"{note}, with {pieces:,} word-pieces",
        )

    def anchored(self, folder: Path) -> Scale:
        """The scale with relative paths of its corpora resolved against ``folder``."""
        others = tuple(corpus.placed(folder) for corpus in self.other_corpora)
        return replace(self, corpus=self.corpus.placed(folder), other_corpora=others)

    def apply(self, base: Config, changes: Mapping[str, Value] | None = None) -> Config:
        """The configuration to run, for a base and a row's ``changes`` in the paper's units."""
        kept = dict(changes or {})
        values: dict[str, Any] = {**columns(base), **kept}
        corpus = self._corpus(base.data.corpus.name, kept.pop("target_language", None))
        settings: Settings = {**self.settings}
        if values["max_steps"] > _PAPER_STEPS:
            settings = {**settings, **self.longer}
        if corpus != self.corpus:
            settings = {**settings, **self.other}
        divided = {name: self._divide(name, values[name], self.divide_widths) for name in _WIDTHS}
        mapped = {
            "num_layers": self._divide("num_layers", values["num_layers"], self.divide_layers),
            "dropout": values["dropout"] / self.divide_dropout,
            "max_steps": self.steps(values["max_steps"]),
            "corpus": corpus,
        }
        replaced = self._replaced(base, settings)
        return with_changes(base, {**replaced, **kept, **divided, **mapped})

    def describe(self, base: Config) -> Iterator[str]:
        """Lines that say what the scale sets in a table with this base, and what it leaves."""
        settings = cast(Mapping[str, Value], self.settings)
        replaced, ours = self._replaced(base, self.settings), columns(base)
        steps = base.training.max_steps
        if self.note:
            yield self.note
        said = [
            f"the scale: {self.division}",
            f"{self.steps(steps):,} steps for the base's {steps:,}",
            f"it sets {_words(replaced) or 'nothing else'}",
        ]
        for rows, some in (("longer rows", self.longer), ("other languages", self.other)):
            if some:
                said.append(f"in {rows} {_words(some)}")
        yield "; ".join(said)
        kept = [
            f"{name}={ours[name]} (the scale's: {value})"
            for name, value in settings.items()
            if name not in replaced
        ]
        if kept:
            yield f"kept from the table's base: {', '.join(kept)}"

    def steps(self, steps: int) -> int:
        """The scaled number of ``steps``, which are 100,000 for the paper's base; at least 1."""
        return max(min(1, steps), steps * self.max_steps // _PAPER_STEPS)

    def _replaced(self, base: Config, settings: Settings) -> dict[str, Value]:
        """The ``settings`` that the base does not name."""
        found = cast(Mapping[str, Value], settings)
        return {name: value for name, value in found.items() if name not in base.named}

    def _corpus(self, of_base: str, language: Value) -> Corpus:
        """The scale's corpus in this language; the base's must be the paper's or the scale's."""
        own = (self.corpus, *self.other_corpora)
        if of_base not in [corpus.name for corpus in (WMT14_EN_DE, PENN, *own)]:
            raise InputError(
                f"corpus is {of_base}, but scale {self.name!r} would replace it by "
                f"{self.corpus.name}: leave it out, or declare scales=(scale(…, corpus=…),) with it"
            )
        for corpus in own:
            if language in (None, corpus.target_language):
                return corpus
        languages = ", ".join(corpus.target_language for corpus in own)
        raise InputError(f"its corpora are in {languages}, none in {language!r}")

    def _divide(self, name: str, value: int, divisor: int) -> int:
        # Sinusoidal positions need pairs of sine and cosine.
        unit = 2 * divisor if name == "d_model" else divisor
        if value % unit:
            raise InputError(
                f"{name} is {value}, which scale {self.name!r} cannot divide by {divisor}: sizes "
                f"are in the paper's units, so {unit}, {2 * unit}, {3 * unit}, … fit"
            )
        return value // divisor


def _words(settings: Mapping[str, object]) -> str:
    return ", ".join(f"{name}={value}" for name, value in settings.items())


def scale(
    name: str,
    *,
    corpus: Corpus,
    other_corpora: tuple[Corpus, ...] = (),
    divide_widths: int = 1,
    divide_layers: int = 1,
    divide_dropout: int = 1,
    max_steps: int = _PAPER_STEPS,
    longer: Settings | None = None,
    other: Settings | None = None,
    **settings: Unpack[Settings],
) -> Scale:
    """A scale; what you do not give stays as in the paper.

    Args:
        other_corpora: corpora for rows in other target languages
    """
    return Scale(
        name=name,
        corpus=corpus,
        divide_widths=divide_widths,
        divide_layers=divide_layers,
        divide_dropout=divide_dropout,
        max_steps=max_steps,
        settings=settings,
        longer=longer or {},
        other_corpora=other_corpora,
        other=other or {},
    )
