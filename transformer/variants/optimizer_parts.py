"""Parts that methods with another optimizer share."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor
from torch.optim import Optimizer

from transformer.config import Config
from transformer.errors import InputError
from transformer.model.encoder_decoder import Transformer
from transformer.training.optimizer import learning_rate


class EachWeight(Optimizer):
    """An optimizer that changes each weight by its own gradient and state.

    All that it keeps is in ``state``, so that it is saved, and works as a part of
    :class:`~transformer.variants.optimizers.JointOptimizer`.
    """

    @torch.no_grad()
    def step(self, closure: Callable[[], float] | None = None) -> float | None:  # pyright: ignore[reportIncompatibleMethodOverride]
        """Take a step for each weight that has a gradient."""
        loss = None
        if closure is not None:
            with torch.enable_grad():
                loss = closure()
        for group in self.param_groups:
            for weight in group["params"]:
                if weight.grad is not None:
                    self.update(weight, weight.grad, self.state[weight], group)
        return loss

    def update(
        self, weight: Tensor, gradient: Tensor, state: dict[str, Any], group: dict[str, Any]
    ) -> None:
        """Change a weight and its state, which is empty at first, in place."""
        raise NotImplementedError


def decay_matrices(model: Transformer, weight_decay: float) -> list[dict[str, Any]]:
    """Groups of parameters: matrices are decayed, gains and biases are not."""
    weights = list(model.parameters())
    return [
        {"params": [x for x in weights if x.dim() >= 2], "weight_decay": weight_decay},
        {"params": [x for x in weights if x.dim() < 2], "weight_decay": 0.0},
    ]


def check_above_zero(**options: float) -> None:
    """Refuse options that have to be above 0.

    Raises:
        InputError: with the name and the value of the first that is not.
    """
    for name, value in options.items():
        if value <= 0:
            raise InputError(f"{name} is {value}, but must be above 0")


def rate_with_peak(peak: float, step: int, config: Config) -> float:
    """The learning rate of the configuration's schedule, ``learning_rate_factor`` included, with
    ``peak`` in place of the paper's (d_model · warmup_steps)^-0.5.
    """
    d_model, training = config.model.d_model, config.training
    papers = (d_model * training.warmup_steps) ** -0.5
    return peak / papers * learning_rate(step, d_model, training)
