"""A method with an average in place of a schedule."""

from __future__ import annotations

import copy
import math
from collections.abc import Mapping
from typing import Any, cast

import torch
from torch import Tensor
from torch.optim import Optimizer
from torch.optim.optimizer import ParamsT

from transformer.config import Config
from transformer.training.module import TransformerModule
from transformer.variants.optimizer_parts import EachWeight, check_above_zero, decay_matrices


class ScheduleFree(TransformerModule):
    """Schedule-free AdamW (Defazio et al. 2024); the average x is validated and scored.

    ``peak``, times ``learning_rate_factor``, is the learning rate from the warm-up on, and
    ``schedule`` does nothing. Peak and decay are those of the authors' self-tuning submission to
    AlgoPerf.
    """

    def __init__(self, config: Config, *, peak: float = 0.0025, weight_decay: float = 0.08) -> None:
        super().__init__(config)
        training = config.training  # x is found by a division by beta1
        check_above_zero(peak=peak, adam_beta1=training.adam_beta1)
        check_above_zero(learning_rate_factor=training.learning_rate_factor)
        self.peak, self.weight_decay = peak, weight_decay

    def optimizer(self) -> Optimizer:
        """Schedule-free AdamW with the configuration's betas and epsilon."""
        config, groups = self.config.training, decay_matrices(self.model, self.weight_decay)
        betas = config.adam_beta1, config.adam_beta2
        return ScheduleFreeAdamW(groups, betas=betas, eps=config.adam_epsilon)

    def learning_rate(self, step: int) -> float:
        """A linear warm-up to the peak, which is kept from there on."""
        training = self.config.training
        return training.learning_rate_factor * self.peak * min(1.0, step / training.warmup_steps)

    def scored_weights(self) -> Mapping[str, Tensor]:
        """The average x, as gradients are those of y."""
        scored = copy.deepcopy(self.model)
        averages = cast(ScheduleFreeAdamW, self.trainer.optimizers[0]).averages()
        for x, y in zip(scored.parameters(), self.model.parameters(), strict=True):
            x.data.copy_(averages.get(y, y))
        return scored.state_dict()


class ScheduleFreeAdamW(EachWeight):
    """Algorithm 1 of Defazio et al. 2024; weights are y, at which gradients are taken.

    With the rate r = lr sqrt(1 - beta2^t) of step t, z goes down by r (g / (sqrt(v) + eps) + decay
    y), x moves towards z by the share r^2 / (the sum of all r^2), and y = beta1 x + (1 - beta1) z.
    As in the authors' code, x is not kept but found from y and z.
    """

    def __init__(
        self,
        weights: ParamsT,
        lr: float = 1.0,
        betas: tuple[float, float] = (0.9, 0.999),
        eps: float = 1e-8,
        weight_decay: float = 0.0,
    ) -> None:
        defaults = {"lr": lr, "betas": betas, "eps": eps, "weight_decay": weight_decay}
        super().__init__(weights, defaults)

    def update(
        self, weight: Tensor, gradient: Tensor, state: dict[str, Any], group: dict[str, Any]
    ) -> None:
        """Take a step for one weight."""
        if not state:
            state.update(step=0, squared_rates=0.0)
            state.update(z=weight.clone(), square=torch.zeros_like(weight))
        (beta1, beta2), z, square = group["betas"], state["z"], state["square"]
        state["step"] += 1
        rate = group["lr"] * math.sqrt(1 - beta2 ** state["step"])
        state["squared_rates"] += rate**2
        square.mul_(beta2).addcmul_(gradient, gradient, value=1 - beta2)
        direction = gradient / square.sqrt().add_(group["eps"])
        direction.add_(weight, alpha=group["weight_decay"])
        x = _average(weight, z, beta1)
        z.sub_(direction, alpha=rate)
        x.lerp_(z, rate**2 / state["squared_rates"])
        weight.copy_(x.lerp_(z, 1 - beta1))

    @torch.no_grad()
    def averages(self) -> dict[Tensor, Tensor]:
        """The x of each weight that has taken a step."""
        return {
            weight: _average(weight, self.state[weight]["z"], group["betas"][0])
            for group in self.param_groups
            for weight in group["params"]
            if weight in self.state
        }


def _average(y: Tensor, z: Tensor, beta1: float) -> Tensor:
    """The x of y = beta1 x + (1 - beta1) z."""
    return y.lerp(z, 1 - 1 / beta1)
