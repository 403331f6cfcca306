"""A method with Adam in the eigenbasis of Shampoo's preconditioner."""

from __future__ import annotations

import math
from typing import Any

import torch
from torch import Tensor
from torch.optim import Optimizer
from torch.optim.optimizer import ParamsT

from transformer.config import Config
from transformer.training.module import TransformerModule
from transformer.variants.optimizer_parts import EachWeight, check_above_zero, rate_with_peak


class Soap(TransformerModule):
    """SOAP (Vyas et al. 2024), with the learning rate, decay and period of its repository.

    ``peak``, times ``learning_rate_factor``, is that of the configuration's schedule.
    """

    def __init__(
        self, config: Config, *, peak: float = 3e-3, weight_decay: float = 0.01, every: int = 10
    ) -> None:
        super().__init__(config)
        check_above_zero(every=every)
        self.peak, self.weight_decay, self.every = peak, weight_decay, every

    def optimizer(self) -> Optimizer:
        """SOAP with decay of all weights. For embeddings only the side of d_model has a basis, as
        the authors' limit of 10,000 leaves out the other side of most vocabularies.
        """
        config, model = self.config.training, self.model
        of_words = id(model.embedding.weight), id(model.output.weight)
        words = [x for x in model.parameters() if id(x) in of_words]
        others = [x for x in model.parameters() if id(x) not in of_words]
        groups = [{"params": others}, {"params": words, "largest": self.config.model.d_model}]
        betas, eps = (config.adam_beta1, config.adam_beta2), config.adam_epsilon
        decay, every = self.weight_decay, self.every
        return SoapOptimizer(groups, betas=betas, eps=eps, weight_decay=decay, every=every)

    def learning_rate(self, step: int) -> float:
        """The schedule with the method's peak."""
        return rate_with_peak(self.peak, step, self.config)


class SoapOptimizer(EachWeight):
    """Algorithm 3 of Vyas et al. 2024, as their code has it.

    Of a matrix, L and R are moving averages of G G^T and G^T G. Adam's square is kept in the basis
    of their eigenvectors, which is renewed each ``every`` steps by a step of the power method and a
    QR decomposition. The first gradient begins L and R and changes no weight. Sides longer than
    ``largest`` have no basis, and vectors none at all: there the steps are Adam's.
    """

    def __init__(
        self,
        weights: ParamsT,
        lr: float = 1.0,
        betas: tuple[float, float] = (0.95, 0.95),
        eps: float = 1e-8,
        weight_decay: float = 0.0,
        every: int = 10,
        largest: int = 10_000,
    ) -> None:
        defaults = {"lr": lr, "betas": betas, "eps": eps, "weight_decay": weight_decay}
        super().__init__(weights, {**defaults, "every": every, "largest": largest})

    def update(
        self, weight: Tensor, gradient: Tensor, state: dict[str, Any], group: dict[str, Any]
    ) -> None:
        """Take a step for one weight."""
        beta1, beta2 = group["betas"]
        if not state:
            _begin(state, gradient, group["largest"])
            _follow(state, gradient, beta2)
            for side in state["sides"]:
                _, vectors = torch.linalg.eigh(state[f"outer_{side}"].double())
                state[f"basis_{side}"] = vectors.flip(1).to(weight.dtype)
            return
        state["step"] += 1
        turned = _turn(gradient, state)
        state["mean"].lerp_(gradient, 1 - beta1)
        state["square"].mul_(beta2).addcmul_(turned, turned, value=1 - beta2)
        step = _turn(state["mean"], state) / state["square"].sqrt().add_(group["eps"])
        correction = math.sqrt(1 - beta2 ** state["step"]) / (1 - beta1 ** state["step"])
        weight.add_(_turn(step, state, back=True), alpha=-group["lr"] * correction)
        weight.mul_(1 - group["lr"] * group["weight_decay"])
        _follow(state, gradient, beta2)
        if state["step"] % group["every"] == 0:
            _renew_bases(state)


def _begin(state: dict[str, Any], gradient: Tensor, largest: int) -> None:
    """Start all averages at zero."""
    sizes = list(gradient.shape) if gradient.dim() == 2 else []
    state.update(step=0, sides=[side for side, size in enumerate(sizes) if size <= largest])
    state.update(mean=torch.zeros_like(gradient), square=torch.zeros_like(gradient))
    for side in state["sides"]:
        state[f"outer_{side}"] = gradient.new_zeros(sizes[side], sizes[side])


def _follow(state: dict[str, Any], gradient: Tensor, beta: float) -> None:
    """Let L and R follow the gradient."""
    for side in state["sides"]:
        rows = gradient if side == 0 else gradient.T
        state[f"outer_{side}"].lerp_(rows @ rows.T, 1 - beta)


def _turn(matrix: Tensor, state: dict[str, Any], back: bool = False) -> Tensor:
    """A matrix in the bases of its sides, or back from there."""
    for side in state["sides"]:
        basis = state[f"basis_{side}"]
        if side == 0:
            matrix = basis @ matrix if back else basis.T @ matrix
        else:
            matrix = matrix @ basis.T if back else matrix @ basis
    return matrix


def _renew_bases(state: dict[str, Any]) -> None:
    """Sort each basis, and Adam's square with it, by eigenvalue; then step the power method."""
    for side in state["sides"]:
        outer, basis = state[f"outer_{side}"], state[f"basis_{side}"]
        order = (basis * (outer @ basis)).sum(0).argsort(descending=True, stable=True)
        state["square"] = state["square"].index_select(side, order)
        state[f"basis_{side}"], _ = torch.linalg.qr(outer @ basis[:, order])
