"""Log the metrics of a step, and check its gradient."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import ParamSpec, TypeVar

import lightning.pytorch as lightning
import torch
from torch import Tensor
from torch.optim import Optimizer

from transformer.config import Config
from transformer.training.optimizer import NonFiniteError

Given = ParamSpec("Given")
Returned = TypeVar("Returned")


def without_stop_iteration(step: Callable[Given, Returned]) -> Callable[Given, Returned]:
    """Turn a StopIteration in the model's code into an error: Lightning would take it for the end
    of the data, and begin the next epoch.
    """

    @functools.wraps(step)
    def call(*args: Given.args, **kwargs: Given.kwargs) -> Returned:
        try:
            return step(*args, **kwargs)
        except StopIteration as error:
            raise RuntimeError("the model's code raised StopIteration") from error

    return call


class LoggedModule(lightning.LightningModule):
    """Adds up the losses of a step's micro-batches, logs them, and checks its gradient."""

    def __init__(self, config: Config) -> None:
        super().__init__()
        self.config = config
        self._batch_number = 0
        # Norms that have not been read: on a GPU, reading one stalls it.
        self._norms: list[tuple[int, int, Tensor]] = []
        self._train_sums: Tensor | None = None

    def _begin_step(self) -> None:
        """Forget the losses of the step before."""
        self._train_sums = None

    def _note(self, sums: Tensor) -> None:
        """Add ``(2,)``: a micro-batch's loss and its plain one, both per target word-piece."""
        self._train_sums = sums if self._train_sums is None else self._train_sums + sums

    def _end_step(self, norm: Tensor, optimizer: Optimizer) -> None:
        """Log a step and check its gradient."""
        self._norms.append((self.global_step, self._batch_number, norm))
        if self._is_logged_step():
            self.log("gradient_norm", norm)
            self._log_step(optimizer.param_groups[0]["lr"])
        if self._is_logged_step() or not norm.is_cuda:
            self._check_norms()

    def _check_norms(self) -> None:
        """Read all norms since the last time."""
        for step, batch_number, norm in self._norms:
            if not norm.isfinite():
                raise NonFiniteError(
                    f"the gradient of step {step + 1} (batch {batch_number + 1}, seed "
                    f"{self.config.training.seed}) is {norm.item()}: try a lower "
                    "learning_rate_factor, a longer warm-up, clip_norm, or precision fp32",
                    step + 1,
                )
        self._norms.clear()

    def _log_step(self, learning_rate: float) -> None:
        """Log the metrics of the whole step, averaged over its micro-batches and all ranks."""
        assert self._train_sums is not None, "a step is noted before it ends"
        mean = self._train_sums / self.trainer.accumulate_grad_batches
        loss, nll = self.trainer.strategy.reduce(mean, reduce_op="mean").unbind()
        self.log("loss", loss)
        self.log("train_perplexity", torch.exp(nll))
        self.log("learning_rate", learning_rate)

    def _is_logged_step(self) -> bool:
        """Whether the metrics of this step are logged."""
        return (self.global_step + 1) % self.config.training.log_every_steps == 0
