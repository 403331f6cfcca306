"""Group rows by the training that they share.

Rows that differ only in how trained weights are averaged and decoded have the same weights.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

from transformer.config import Config, DecodingConfig, TrainingConfig, override
from transformer.errors import InputError


@dataclass(frozen=True, kw_only=True, slots=True)
class Training:
    """Rows that are trained once for each seed and scored once for each row.

    ``checkpoints`` is the largest number of the last checkpoints that one of them averages.
    """

    rows: tuple[str, ...]
    checkpoints: int


def training_of(config: Config) -> Config:
    """``config`` without what its weights do not depend on; equal for one training."""
    without = replace(config, decoding=DecodingConfig())
    return override(without, average_checkpoints=1, also_average=None)


def trainings_of(configs: Mapping[str, Config]) -> tuple[Training, ...]:
    """The trainings of rows with these configurations, in the order of their first rows."""
    rows: dict[Config, list[str]] = {}
    for name, config in configs.items():
        rows.setdefault(training_of(config), []).append(name)
    return tuple(
        Training(rows=tuple(names), checkpoints=max(needed_checkpoints(configs[x]) for x in names))
        for names in rows.values()
    )


def needed_checkpoints(config: Config) -> int:
    """How many of the last checkpoints are averaged to score a run."""
    return max(config.training.average_checkpoints, config.training.also_average or 1)


def written_checkpoints(training: TrainingConfig) -> int | None:
    """How many checkpoints a training writes; None if they are minutes apart."""
    if training.checkpoint_every_minutes is not None:
        return None
    return -(-training.max_steps // training.checkpoint_every_steps)  # and one at the last step


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
    """Whether rows of one training have the same score by this measure.

    Perplexity does not depend on how a search decodes.
    """
    if one.training.average_checkpoints != other.training.average_checkpoints:
        return False
    return "perplexity" in measure or one.decoding == other.decoding
