"""What is done with Lightning's checkpoints: averaging, resuming, and reading older ones."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

_ACCUMULATE = "accumulate_grad_batches"
# What the parts of a layer were called in the checkpoints and exports of earlier versions.
_FORMER_NAMES = {
    "add_attention": "self_attention_norm",
    "add_cross_attention": "cross_attention_norm",
    "add_feed_forward": "feed_forward_norm",
}


def with_current_names(weights: dict[str, Tensor]) -> dict[str, Tensor]:
    """The same weights, those of earlier versions under their current names."""
    return {
        ".".join(_FORMER_NAMES.get(part, part) for part in name.split(".")): weight
        for name, weight in weights.items()
    }


def average_weights(checkpoints: Sequence[Path]) -> dict[str, Tensor]:
    """The mean of each of the model's weights (section 6.1), summed in float64.

    Raises:
        ValueError: if there is no checkpoint.
    """
    if not checkpoints:
        raise ValueError("no checkpoint to average")
    first = _load_weights(checkpoints[0])
    total = {name: weight.double() for name, weight in first.items()}
    for path in checkpoints[1:]:
        for name, weight in _load_weights(path).items():
            total[name] += weight.double()
    return {
        name: (weight / len(checkpoints)).to(first[name].dtype) for name, weight in total.items()
    }


def _load_weights(path: Path) -> dict[str, Tensor]:
    weights = torch.load(path, map_location="cpu", weights_only=True)["state_dict"]
    own = {name.removeprefix("model."): weight for name, weight in weights.items()}
    return with_current_names(own)


def adapt(checkpoint: dict[str, Any], accumulate: int | None) -> None:
    """Adapt a loaded checkpoint, in place, to this version and to ``accumulate`` micro-batches.

    Only its weights, if there are no optimizer states or ``accumulate`` is None (no Trainer).
    """
    checkpoint["state_dict"] = with_current_names(checkpoint["state_dict"])
    if accumulate is not None and "optimizer_states" in checkpoint:
        _recount_batches(checkpoint, accumulate)


def record_accumulation(checkpoint: dict[str, Any], accumulate: int) -> None:
    """Store in ``checkpoint`` how many micro-batches each step takes."""
    checkpoint[_ACCUMULATE] = accumulate


def _recount_batches(checkpoint: dict[str, Any], accumulate: int) -> None:
    """Convert Lightning's counts of micro-batches to ``accumulate`` of them per step.

    With the old counts it would end an epoch or a step at the wrong micro-batch.
    """
    before = checkpoint.get(_ACCUMULATE, 1)
    progress = checkpoint["loops"]["fit_loop"]["epoch_loop.batch_progress"]
    for counts in (progress["total"], progress["current"]):
        # A checkpoint written during a batch has one completed batch less than begun.
        unfinished = counts["ready"] - counts["completed"]
        ready = counts["ready"] * accumulate // before
        counts.update(ready=ready, started=ready, processed=ready, completed=ready - unfinished)
