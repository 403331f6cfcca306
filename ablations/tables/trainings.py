"""Group rows by the training that they share.

Rows that differ only in averaging and decoding have the same trained weights.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from transformer.config import Config, TrainingConfig, training_digest
from transformer.corpus import Corpus
from transformer.errors import InputError


@dataclass(frozen=True, kw_only=True, slots=True)
class Training:
    """Rows that are trained once per seed, and each scored on its own.

    ``checkpoints`` is the largest number of checkpoints that one of them averages.
    """

    rows: tuple[str, ...]
    checkpoints: int


def trainings_of(configs: Mapping[str, Config]) -> tuple[Training, ...]:
    """The trainings of rows with these configurations, ordered by their first rows."""
    rows: dict[tuple[Corpus, str], list[str]] = {}
    for name, config in configs.items():
        rows.setdefault((config.data.corpus, training_digest(config)), []).append(name)
    trainings: list[Training] = []
    for names in rows.values():
        checkpoints = max(needed_checkpoints(configs[name]) for name in names)
        trainings.append(Training(rows=tuple(names), checkpoints=checkpoints))
    return tuple(trainings)


def needed_checkpoints(config: Config) -> int:
    """The number of last checkpoints that scoring a run needs."""
    return max(config.training.average_checkpoints, config.training.also_average or 1)


def written_checkpoints(training: TrainingConfig) -> int | None:
    """The number of checkpoints that a training writes; None if they are timed in minutes."""
    if training.checkpoint_every_minutes is not None:
        return None
    return -(-training.max_steps // training.checkpoint_every_steps)  # rounded up: also the last


def check_checkpoints(row: str, config: Config) -> None:
    """Check that a row averages no more checkpoints than its training writes.

    Raises:
        InputError: if it does
    """
    training = config.training
    written, wanted = written_checkpoints(training), training.average_checkpoints
    if written is not None and wanted > written:
        raise InputError(
            f"row {row!r} averages {wanted} checkpoints, but its training writes {written}, one "
            f"every {training.checkpoint_every_steps:,} of {training.max_steps:,} steps: average "
            "fewer, or set checkpoint_every_steps lower"
        )


def is_equal_by_construction(one: Config, other: Config, measure: str) -> bool:
    """Whether two rows of one training have the same score by this measure.

    Perplexity does not depend on decoding.
    """
    if one.training.average_checkpoints != other.training.average_checkpoints:
        return False
    return "perplexity" in measure or one.decoding == other.decoding
