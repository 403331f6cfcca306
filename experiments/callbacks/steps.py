"""Optimiser steps, which the Trainer tells callbacks of by their micro-batches."""

from __future__ import annotations

import lightning.pytorch as lightning


def completes_step(trainer: lightning.Trainer) -> bool:
    """Whether the micro-batch that has just ended is the last of its step."""
    return (trainer.fit_loop.batch_idx + 1) % trainer.accumulate_grad_batches == 0
