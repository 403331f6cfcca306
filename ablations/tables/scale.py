"""A scale fits a table to a machine: smaller models, less text, fewer steps."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path
from typing import TypedDict, Unpack

from ablations.files import check_name
from transformer.config import Config, Precision, Schedule, TrainingConfig, override
from transformer.corpus import Corpus
from transformer.data.corpora.folders import anchored
from transformer.errors import InputError, unknown_name

_PAPER_STEPS = TrainingConfig().max_steps


class Checkpoints(TypedDict, total=False):
    """How often to write a checkpoint, and how many of the last to score as an average, alone or
    too.
    """

    checkpoint_every_steps: int
    average_checkpoints: int
    also_average: int | None


class Settings(Checkpoints, total=False):
    """What else a scale may set for all rows."""

    beam_size: int
    length_penalty: float

    vocab_size: int
    max_positions: int
    tokens_per_batch: int
    max_length: int
    warmup_steps: int
    schedule: Schedule
    learning_rate_factor: float
    adam_beta2: float
    clip_norm: float | None
    precision: Precision
    validate_every_steps: int
    log_every_steps: int


@dataclass(frozen=True, kw_only=True, slots=True)
class Scale:
    """A mapping from the paper's units to what fits a machine.

    ``d_model``, ``d_ff``, ``d_k`` and ``d_v`` are divided by ``divide_widths``, N by
    ``divide_layers`` and P_drop by ``divide_dropout``; h is kept. ``max_steps`` replaces the
    paper's 100,000, and rows with other numbers of steps are scaled in proportion. Rows with more
    steps take ``longer`` over ``settings``.
    """

    name: str
    corpus: Corpus
    divide_widths: int
    divide_layers: int
    divide_dropout: int = 1
    max_steps: int
    settings: Settings
    longer: Checkpoints
    other_corpora: tuple[Corpus, ...] = ()

    @property
    def division(self) -> str:
        """What it divides by how much, in words."""
        return division(self.divide_widths, self.divide_layers, self.divide_dropout)

    def anchored(self, folder: Path) -> Scale:
        """The scale with relative paths of its corpora resolved against ``folder``."""
        others = tuple(anchored(corpus, folder) for corpus in self.other_corpora)
        return replace(self, corpus=anchored(self.corpus, folder), other_corpora=others)

    def apply(self, config: Config, target_language: str | None = None) -> Config:
        """The configuration to run for one in the paper's units.

        Args:
            target_language: that of one of ``other_corpora``, or None for ``corpus``

        Raises:
            InputError: if a width or the depth is not divisible, or no corpus is in that language.
        """
        model = config.model
        longer = self.longer if config.training.max_steps > _PAPER_STEPS else {}
        return override(
            config,
            corpus=self._corpus(target_language),
            num_layers=_divide("num_layers", model.num_layers, self.divide_layers),
            **{
                name: _divide(name, getattr(model, name), self.divide_widths)
                for name in ("d_model", "d_ff", "d_k", "d_v")
            },
            dropout=model.dropout / self.divide_dropout,
            max_steps=max(1, config.training.max_steps * self.max_steps // _PAPER_STEPS),
            **(self.settings | longer),
        )

    def _corpus(self, target_language: str | None) -> Corpus:
        corpora = (self.corpus, *self.other_corpora)
        for corpus in corpora:
            if target_language in (None, corpus.target_language):
                return corpus
        raise InputError(
            f"its corpora are in {', '.join(x.target_language for x in corpora)}, "
            f"none in {target_language!r}"
        )


def scale(
    name: str,
    *,
    corpus: Corpus,
    other_corpora: tuple[Corpus, ...] = (),
    divide_widths: int = 1,
    divide_layers: int = 1,
    divide_dropout: int = 1,
    max_steps: int = _PAPER_STEPS,
    longer: Checkpoints | None = None,
    **settings: Unpack[Settings],
) -> Scale:
    """A scale; with a corpus alone it is the identity.

    Args:
        other_corpora: for rows in other target languages

    Raises:
        InputError: for a setting that a scale does not have.
    """
    check_name("scale", name)
    for setting in (*settings, *(longer or {})):
        if setting not in Settings.__annotations__:
            raise unknown_name("setting", setting, Settings.__annotations__)
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
    )


def division(widths: int, layers: int, dropout: int) -> str:
    """What a scale divides by how much, as ``widths / 8, N / 2``."""
    divisors = {"widths": widths, "N": layers, "dropout": dropout}
    divided = (f"{name} / {divisor}" for name, divisor in divisors.items() if divisor > 1)
    return ", ".join(divided) or "the paper's sizes"


def _divide(name: str, value: int, divisor: int) -> int:
    if value % divisor:
        raise InputError(f"{name} is {value}, which the scale cannot divide by {divisor}")
    return value // divisor
