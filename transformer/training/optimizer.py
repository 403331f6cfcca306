"""Adam and its learning rate (section 5.3), and the check of every gradient that it takes.

Importing it does not import torch: reports compute learning rates.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any

from transformer.config import TrainingConfig

if TYPE_CHECKING:
    from torch import Tensor, nn


def learning_rate(step: int, d_model: int, config: TrainingConfig) -> float:
    """d_model^-0.5 · min(step^-0.5, step · warmup_steps^-1.5), equation 3, times the factor.

    ``step`` counts from 1. The peak, at ``warmup_steps``, is (d_model · warmup_steps)^-0.5. From
    there the ``linear`` schedule falls on a straight line that reaches zero after ``max_steps``.
    """
    warmup = config.warmup_steps
    peak = config.learning_rate_factor * (d_model * warmup) ** -0.5
    if step <= warmup:
        return peak * step / warmup
    if config.schedule == "linear":
        return peak * max(0, config.max_steps + 1 - step) / (config.max_steps + 1 - warmup)
    return peak * (warmup / step) ** 0.5


def adam(
    parameters: Iterable[nn.Parameter], config: TrainingConfig, rate_after: Callable[[int], float]
) -> dict[str, Any]:
    """Adam, with the learning rate after each number of steps, in the form Lightning takes it."""
    from torch.optim import Adam
    from torch.optim.lr_scheduler import LambdaLR

    betas = (config.adam_beta1, config.adam_beta2)
    optimizer = Adam(parameters, lr=1.0, betas=betas, eps=config.adam_epsilon, fused=True)
    scheduler = LambdaLR(optimizer, rate_after)
    return {"optimizer": optimizer, "lr_scheduler": {"scheduler": scheduler, "interval": "step"}}


class NonFiniteError(Exception):
    """A gradient is infinite or NaN. The message names the step and its batch."""


class GradientCheck:
    """Keeps the norms of gradients until they can be read: on a GPU, reading one stalls it."""

    def __init__(self, seed: int) -> None:
        self._seed = seed
        self._unchecked: list[tuple[int, int, Tensor]] = []

    def add(self, step: int, batch_number: int, norm: Tensor) -> None:
        """Keep the ``norm`` of the gradient of ``step``, which ended with this batch."""
        self._unchecked.append((step, batch_number, norm))

    def check(self) -> None:
        """Read all norms since the last time.

        Raises:
            NonFiniteError: if one is infinite or NaN.
        """
        for step, batch_number, norm in self._unchecked:
            if not norm.isfinite():
                raise NonFiniteError(
                    f"the gradient of step {step} (batch {batch_number} since the start, seed "
                    f"{self._seed}) is {norm.item()}: try a lower learning_rate_factor, a longer "
                    "warm-up, clip_norm, or precision fp32"
                )
        self._unchecked.clear()
