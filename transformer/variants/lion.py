"""Lion, a method whose steps are signs."""

from __future__ import annotations

from typing import Any

from torch import Tensor, zeros_like
from torch.optim import Optimizer
from torch.optim.optimizer import ParamsT

from transformer.config import Config
from transformer.training.module import TransformerModule
from transformer.variants.optimizer_parts import EachWeight, decay_matrices


class Lion(TransformerModule):
    """Lion (Chen et al. 2023, Algorithm 2), with decay of all matrices.

    Its authors advise a learning rate 3 to 10 times lower than AdamW's and a weight decay as many
    times higher, 10 times in all examples of their repository. So the learning rate is ``ratio``
    times that of the configuration, ``learning_rate_factor`` included, and the default of
    ``weight_decay`` is ten times that of our AdamW.
    """

    def __init__(self, config: Config, *, ratio: float = 0.1, weight_decay: float = 1.0) -> None:
        super().__init__(config)
        self.ratio, self.weight_decay = ratio, weight_decay

    def optimizer(self) -> Optimizer:
        """Lion with the configuration's betas."""
        betas = self.config.training.adam_beta1, self.config.training.adam_beta2
        return LionOptimizer(decay_matrices(self.model, self.weight_decay), betas=betas)

    def learning_rate(self, step: int) -> float:
        """``ratio`` times the learning rate of the configuration's schedule."""
        return self.ratio * super().learning_rate(step)


class LionOptimizer(EachWeight):
    """Algorithm 2 of Chen et al. 2023: w - lr (sign(beta1 m + (1 - beta1) g) + decay w), and the
    momentum m is a moving average of the gradient g with beta2.
    """

    def __init__(
        self,
        weights: ParamsT,
        lr: float = 1.0,
        betas: tuple[float, float] = (0.9, 0.99),
        weight_decay: float = 0.0,
    ) -> None:
        super().__init__(weights, {"lr": lr, "betas": betas, "weight_decay": weight_decay})

    def update(
        self, weight: Tensor, gradient: Tensor, state: dict[str, Any], group: dict[str, Any]
    ) -> None:
        """Take a step for one weight."""
        if not state:
            state["momentum"] = zeros_like(weight)
        (beta1, beta2), momentum = group["betas"], state["momentum"]
        weight.mul_(1 - group["lr"] * group["weight_decay"])
        weight.add_(momentum.lerp(gradient, 1 - beta1).sign_(), alpha=-group["lr"])
        momentum.lerp_(gradient, 1 - beta2)
