"""Methods with other optimizers."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch.optim import Adam, Optimizer

from transformer.config import Config
from transformer.training.module import TransformerModule


class AdamW(TransformerModule):
    """Decoupled weight decay of all matrices (Loshchilov and Hutter 2019)."""

    def __init__(self, config: Config, *, weight_decay: float = 0.1) -> None:
        super().__init__(config)
        self.weight_decay = weight_decay

    def optimizer(self) -> Optimizer:
        """AdamW; gains and biases are not decayed."""
        vectors = [weight for weight in self.model.parameters() if weight.dim() < 2]
        matrices = [weight for weight in self.model.parameters() if weight.dim() >= 2]
        groups = [
            {"params": matrices, "weight_decay": self.weight_decay},
            {"params": vectors, "weight_decay": 0.0},
        ]
        config = self.config.training
        betas = config.adam_beta1, config.adam_beta2
        return torch.optim.AdamW(groups, lr=1.0, betas=betas, eps=config.adam_epsilon, fused=True)


class Muon(TransformerModule):
    """Orthogonalised momentum for the layers' matrices (Jordan et al. 2024), Adam for the rest."""

    def optimizer(self) -> Optimizer:
        """Muon with steps as large as Adam's (Liu et al. 2025), so that the learning rate fits."""
        layers = (*self.model.encoder, *self.model.decoder)
        matrices = [weight for x in layers for weight in x.parameters() if weight.dim() == 2]
        taken = set(map(id, matrices))
        others = [weight for weight in self.model.parameters() if id(weight) not in taken]
        config = self.config.training
        betas = config.adam_beta1, config.adam_beta2
        return JointOptimizer(
            torch.optim.Muon(matrices, lr=1.0, weight_decay=0.0, adjust_lr_fn="match_rms_adamw"),
            Adam(others, lr=1.0, betas=betas, eps=config.adam_epsilon, fused=True),
        )


class JointOptimizer(Optimizer):
    """Several optimizers, each for its own parameters, with one schedule and one state."""

    def __init__(self, *parts: Optimizer) -> None:
        self.parts = parts
        super().__init__([group for part in parts for group in part.param_groups], {})
        self._share()

    def __setstate__(self, state: dict[str, Any]) -> None:
        super().__setstate__(state)
        self._share()

    def _share(self) -> None:
        groups = iter(self.param_groups)
        for part in self.parts:
            part.state = self.state
            part.param_groups = [next(groups) for _ in part.param_groups]

    def step(self, closure: Callable[[], float] | None = None) -> float | None:  # pyright: ignore[reportIncompatibleMethodOverride]
        """Take a step with each optimizer."""
        first, *others = self.parts
        loss = first.step(closure)
        for part in others:
            part.step()
        return loss
