"""The optimizer and the learning rate of section 5.3.

Importing it does not import torch: reports compute learning rates.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from transformer.config import TrainingConfig

if TYPE_CHECKING:
    from collections.abc import Iterable

    from torch import Tensor
    from torch.optim import Optimizer


def learning_rate(step: int, d_model: int, config: TrainingConfig) -> float:
    """d_model^-0.5 · min(step^-0.5, step · warmup_steps^-1.5), equation 3, times the factor.

    ``step`` counts from 1. The peak, at ``warmup_steps``, is (d_model · warmup_steps)^-0.5. From
    there the ``linear`` schedule falls on a straight line that reaches zero after ``max_steps``,
    and ``cosine`` on half a wave (Loshchilov and Hutter 2017).
    """
    warmup = config.warmup_steps
    peak = config.learning_rate_factor * (d_model * warmup) ** -0.5
    if step <= warmup:
        return peak * step / warmup
    steps, left = config.max_steps + 1 - warmup, max(0, config.max_steps + 1 - step)
    if config.schedule == "linear":
        return peak * left / steps
    if config.schedule == "cosine":
        return peak * (1 - math.cos(math.pi * left / steps)) / 2
    return peak * (warmup / step) ** 0.5


def make_adam(weights: Iterable[Tensor], config: TrainingConfig) -> Optimizer:
    """Adam (section 5.3); the schedule multiplies its learning rate of 1."""
    from torch.optim import Adam

    betas = (config.adam_beta1, config.adam_beta2)
    return Adam(weights, lr=1.0, betas=betas, eps=config.adam_epsilon, fused=True)


class NonFiniteError(Exception):
    """The gradient of ``step``, which counts from 1, is infinite or NaN.

    The message names the step and its batch.
    """

    def __init__(self, message: str, step: int) -> None:
        super().__init__(message)
        self.step = step
