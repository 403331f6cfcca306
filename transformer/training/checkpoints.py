"""Lightning's checkpoints: averaged, and resumed with other micro-batches."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from transformer.config import Config, training_digest
from transformer.errors import InputError

#: Where a checkpoint says how many micro-batches each of its steps took.
ACCUMULATE = "accumulate_grad_batches"
#: Where it says which training it is of.
TRAINING = "training_digest"
#: Where it says how its steps were computed; earlier versions' were ``plain`` or ``compiled``.
STEP_KIND = "step_kind"
#: The model's weights to score, by name, where a method trains others.
SCORED = "scored_weights"


def check_trainings(checkpoints: Iterable[Path], config: Config) -> None:
    """Refuse checkpoints of another training, without reading their weights.

    Raises:
        InputError: with the first one's name.
    """
    for path in checkpoints:
        try:
            content = torch.load(path, map_location="cpu", weights_only=True, mmap=True)
        except Exception:  # as of a damaged one, which is named when its weights are read
            continue
        check_training(content, config, path)


def check_training(checkpoint: object, config: Config, name: object) -> None:
    """Refuse a checkpoint of another training; one of an earlier version does not say.

    Raises:
        InputError: with the checkpoint's ``name``.
    """
    if not isinstance(checkpoint, dict):
        raise _no_checkpoint(name)
    if checkpoint.get(TRAINING) not in (None, training_digest(config)):
        raise InputError(
            f"{name} belongs to another training, with another seed or other settings: remove it, "
            "or restore the run's own"
        )


def average_weights(checkpoints: Sequence[Path]) -> dict[str, Tensor]:
    """The mean of each of the model's weights (section 6.1), summed in float64."""
    total: dict[str, Tensor] = {}
    for path in checkpoints:
        for name, weight in _weights_of(path).items():
            if name in total and total[name].shape != weight.shape:
                raise _no_checkpoint(path)
            total[name] = weight.double() + total.get(name, 0.0)
    return {name: (weight / len(checkpoints)).float() for name, weight in total.items()}


def _weights_of(path: Path) -> dict[str, Tensor]:
    """The model's weights to score."""
    content: Any = torch.load(path, map_location="cpu", weights_only=True)
    every = content.get("state_dict") if isinstance(content, dict) else None
    if not isinstance(every, dict):
        raise _no_checkpoint(path)
    weights = content.get(SCORED)
    if weights is None:  # without what a method keeps beside the model
        named = ((str(name), weight) for name, weight in every.items())
        weights = {
            name.removeprefix("model."): weight
            for name, weight in named
            if name.startswith("model.")
        }
    if not weights or not all(isinstance(weight, Tensor) for weight in weights.values()):
        raise _no_checkpoint(path)
    return weights


def _no_checkpoint(name: object) -> InputError:
    return InputError(f"{name} holds no training that could be continued or used: remove it")


def recount_batches(checkpoint: dict[str, Any], accumulate: int) -> None:
    """Convert Lightning's counts of micro-batches, in place, to ``accumulate`` of them per step.

    With the old counts it would end an epoch or a step at the wrong micro-batch.
    """
    before = checkpoint.get(ACCUMULATE, 1)
    progress = checkpoint["loops"]["fit_loop"]["epoch_loop.batch_progress"]
    for counts in (progress["total"], progress["current"]):
        # A checkpoint written during a batch has one batch fewer completed than begun.
        unfinished = counts["ready"] - counts["completed"]
        ready = counts["ready"] * accumulate // before
        counts.update(ready=ready, started=ready, processed=ready, completed=ready - unfinished)
