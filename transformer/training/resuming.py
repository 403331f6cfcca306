"""Checkpoints of a run that goes on under another set-up."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch.nn.functional as F
from torch import Tensor

_ACCUMULATE = "accumulate_grad_batches"


def note_accumulation(checkpoint: dict[str, Any], accumulate: int) -> None:
    """Note how many micro-batches a step of the run that writes ``checkpoint`` takes."""
    checkpoint[_ACCUMULATE] = accumulate


def recount_batches(checkpoint: dict[str, Any], accumulate: int) -> None:
    """Let a run go on with ``accumulate`` micro-batches a step, whatever it took before.

    Lightning counts micro-batches, and would end an epoch or a step at the wrong one.
    """
    before = checkpoint.get(_ACCUMULATE, 1)
    progress = checkpoint["loops"]["fit_loop"]["epoch_loop.batch_progress"]
    for counts in (progress["total"], progress["current"]):
        # A checkpoint from within a batch has one less completed than begun.
        unfinished = counts["ready"] - counts["completed"]
        ready = counts["ready"] * accumulate // before
        counts.update(ready=ready, started=ready, processed=ready, completed=ready - unfinished)


def pad_moments(checkpoint: dict[str, Any], parameters: Sequence[Tensor]) -> None:
    """Give Adam's moments the rows of their parameters, for embeddings once had no padding."""
    for index, state in checkpoint["optimizer_states"][0]["state"].items():
        for name in ("exp_avg", "exp_avg_sq"):
            moment: Tensor = state[name]
            missing = parameters[index].size(0) - moment.size(0)
            state[name] = F.pad(moment, (0, 0) * (moment.dim() - 1) + (0, missing))
