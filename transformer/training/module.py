"""The training of section 5 as a LightningModule."""

from __future__ import annotations

import functools
import math
import warnings
from collections.abc import Callable
from typing import Any, ParamSpec, TypeVar, cast

import lightning.pytorch as lightning
import numpy as np
import torch
from lightning.pytorch.core.optimizer import LightningOptimizer
from torch import Tensor
from torch.optim import Optimizer

from transformer.config import PAD_ID, Config, training_digest
from transformer.data.batches import Batch
from transformer.kernels.halves import loss_of_halves
from transformer.training.checkpoints import (
    ACCUMULATE,
    STEP_KIND,
    TRAINING,
    check_training,
    recount_batches,
)
from transformer.training.loss import loss_sums
from transformer.training.optimizer import NonFiniteError, learning_rate, make_optimizer
from transformer.training.packing import PackedBatch
from transformer.training.precision import autocast
from transformer.training.step_kinds import StepKind, takes_whole_batches
from transformer.training.whole_step import WholeStep, choose_steps
from transformer.variant import build

Given = ParamSpec("Given")
Returned = TypeVar("Returned")


def _without_stop_iteration(step: Callable[Given, Returned]) -> Callable[Given, Returned]:
    """Turn a StopIteration of the model's code into an error: Lightning would take it for the end
    of the data, and begin the next epoch.
    """

    @functools.wraps(step)
    def call(*args: Given.args, **kwargs: Given.kwargs) -> Returned:
        try:
            return step(*args, **kwargs)
        except StopIteration as error:
            raise RuntimeError("the model's code raised StopIteration") from error

    return call


class TransformerModule(lightning.LightningModule):
    """The Transformer with its loss, optimiser and schedule.

    Everything that affects the result is in here and in the data module, precision and gradient
    clipping included, so it is the same in any Trainer. Dropout is seeded anew for each
    (seed, batch, shard): a resumed run continues bit for bit, and a device that accumulates
    gradients draws the same masks as several devices without accumulation.
    """

    def __init__(self, config: Config) -> None:
        super().__init__()
        self.config = config
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(config.training.seed)
            self.model = build(config.model)
        self._compiled_sums: Callable[..., tuple[Tensor, Tensor]] | None = None
        self.step_kind: StepKind = "compiled" if config.training.compile else "plain"
        self._compile(self.step_kind)
        self._begun_as: StepKind | None = None  # if training is resumed
        self._whole_step: WholeStep | None = None
        self._batch_number = 0
        # Norms that have not been read: on a GPU, reading one stalls it.
        self._norms: list[tuple[int, int, Tensor]] = []
        self._train_sums = torch.zeros(2)
        self._valid_sums = torch.zeros(2, dtype=torch.float64)

    def configure_optimizers(self) -> Any:
        """The model's optimizer, with the schedule of section 5.3."""
        optimizer = make_optimizer(self.model, self.config.training)
        schedule = torch.optim.lr_scheduler.LambdaLR(optimizer, self.learning_rate_after)
        return {"optimizer": optimizer, "lr_scheduler": {"scheduler": schedule, "interval": "step"}}

    def learning_rate_after(self, steps: int) -> float:
        """The learning rate of step ``steps + 1``."""
        return learning_rate(steps + 1, self.config.model.d_model, self.config.training)

    def _compile(self, kind: StepKind) -> None:
        """Compile the loss of padded batches, or not."""
        if kind != "compiled":
            self._compiled_sums = None
        elif self._compiled_sums is None:
            # Otherwise DDP cuts the graph where its buckets end.
            torch._dynamo.config.optimize_ddp = False
            self._compiled_sums = torch.compile(self._sums, dynamic=True)

    def loss(self, batch: Batch) -> tuple[Tensor, Tensor]:
        """Sums over the target word-pieces of the smoothed loss and of the plain one, in nats."""
        return self._call(self._sums, batch)

    def _call(
        self, sums: Callable[..., tuple[Tensor, Tensor]], batch: Batch
    ) -> tuple[Tensor, Tensor]:
        # Sliced out here: torch 2.11 cannot compile for GPUs what depends on the sizes of slices.
        inputs, targets = batch.tgt[:, :-1], batch.tgt[:, 1:]
        with autocast(self.config, self.device):
            return sums(batch.src, inputs, targets, batch.real_targets)

    def _sums(
        self, src: Tensor, inputs: Tensor, targets: Tensor, real_targets: Tensor
    ) -> tuple[Tensor, Tensor]:
        smoothing = self.config.training.label_smoothing
        return loss_sums(self.model, smoothing, src, inputs, targets, real_targets)

    def setup(self, stage: str) -> None:
        """Expect the hook of this module to be called, of which Lightning would warn."""
        hook = "You have overridden `on_before_batch_transfer` in `LightningModule`"
        warnings.filterwarnings("ignore", hook)

    def on_train_start(self) -> None:
        """Choose how steps are computed, now that weights and the optimizer's state are loaded."""
        self.step_kind, self._whole_step = choose_steps(
            self.model,
            self.config,
            self.trainer.optimizers[0],
            self._begun_as,
            takes_whole_batches(self.trainer),
        )
        self._compile(self.step_kind)

    def on_before_batch_transfer(self, batch: Batch, dataloader_idx: int) -> Batch | PackedBatch:
        """Lay the sentences end to end, where steps are packed."""
        if self._whole_step is None or not self.trainer.training:
            return batch
        return self._whole_step.prepare(batch)

    def training_loss(self, batch: Batch) -> tuple[Tensor, Tensor]:
        """The same as ``loss``, with the fastest way to its gradient.

        Rounding and the masks of dropout differ.
        """
        if self._compiled_sums is not None:
            return self._call(self._compiled_sums, batch)
        if self.device.type == "cpu" and torch.get_num_threads() > 1 and len(batch.src) > 1:
            trained = [parameter for parameter in self.parameters() if parameter.requires_grad]
            return loss_of_halves(self.loss, batch.halves(), trained)
        return self.loss(batch)

    @_without_stop_iteration
    def training_step(self, batch: Batch | PackedBatch, batch_idx: int) -> Tensor:
        """This shard's part of the smoothed loss per target word-piece of the global batch."""
        self._seed(self.config.training.seed, batch.number, batch.shard)
        self._batch_number = batch.number
        norm = None
        if self._whole_step is not None:
            smoothed, nll, norm = self._whole_step(batch)
        else:
            smoothed, nll = self.training_loss(cast(Batch, batch))
        # Lightning averages over ranks and micro-batches, so each scales its sum by their number.
        scale = batch.shards / batch.target_tokens
        if self._at_log_step():
            if batch_idx % self.trainer.accumulate_grad_batches == 0:
                self._train_sums = smoothed.new_zeros(2)
            self._train_sums += torch.stack([smoothed.detach(), nll]) * scale
        if norm is not None:
            self._end_step(norm, self.trainer.optimizers[0])
        return smoothed * scale

    def _seed(self, *numbers: int) -> None:
        seed = int(np.random.SeedSequence(numbers).generate_state(1)[0])
        # torch.manual_seed also queues a call for absent devices: 1 ms, and memory never freed.
        torch.default_generator.manual_seed(seed)
        if self.device.type == "cuda":
            torch.cuda.manual_seed(seed)

    # A step in one piece has been taken within training_step, and Lightning only counts it.

    @_without_stop_iteration
    def backward(self, *args: Any, **kwargs: Any) -> None:
        """As Lightning does."""
        if self._whole_step is None:
            super().backward(*args, **kwargs)

    def optimizer_zero_grad(self, *args: Any, **kwargs: Any) -> None:
        """As Lightning does."""
        if self._whole_step is None:
            super().optimizer_zero_grad(*args, **kwargs)

    @_without_stop_iteration
    def optimizer_step(
        self,
        epoch: int,
        batch_idx: int,
        optimizer: Optimizer | LightningOptimizer,
        optimizer_closure: Callable[[], Any] | None = None,
    ) -> None:
        """As Lightning does."""
        if self._whole_step is None:
            super().optimizer_step(epoch, batch_idx, optimizer, optimizer_closure)
        elif optimizer_closure is not None:
            optimizer_closure()

    def configure_gradient_clipping(
        self,
        optimizer: Optimizer,
        gradient_clip_val: float | None = None,
        gradient_clip_algorithm: str | None = None,
    ) -> None:
        """Measure the norm of the gradient, and clip it if ``clip_norm`` is set.

        Raises:
            NonFiniteError: at once on a CPU; on a GPU, where reading a value at every step
                would stall it, at the next logged step and before any checkpoint.
        """
        parameters = list(self.parameters())
        norm = torch.nn.utils.get_total_norm([p.grad for p in parameters if p.grad is not None])
        if (limit := self.config.training.clip_norm) is not None:
            torch.nn.utils.clip_grads_with_norm_(parameters, limit, norm)
        self._end_step(norm, optimizer)
        super().configure_gradient_clipping(optimizer, gradient_clip_val, gradient_clip_algorithm)

    def _end_step(self, norm: Tensor, optimizer: Optimizer) -> None:
        """Log a step and check its gradient."""
        self._norms.append((self.global_step, self._batch_number, norm))
        if self._at_log_step():
            self.log("gradient_norm", norm)
            self._log_step(optimizer.param_groups[0]["lr"])
        if self._at_log_step() or not norm.is_cuda:
            self._check_norms()

    def _check_norms(self) -> None:
        """Read all norms since the last time."""
        for step, batch_number, norm in self._norms:
            if not norm.isfinite():
                raise NonFiniteError(
                    f"the gradient of step {step + 1} (batch {batch_number + 1}, seed "
                    f"{self.config.training.seed}) is {norm.item()}: try a lower "
                    "learning_rate_factor, a longer warm-up, clip_norm, or precision fp32"
                )
        self._norms.clear()

    def _log_step(self, learning_rate: float) -> None:
        """Log the metrics of the whole step, averaged over its micro-batches and all ranks."""
        mean = self._train_sums / self.trainer.accumulate_grad_batches
        loss, nll = self.trainer.strategy.reduce(mean, reduce_op="mean").unbind()
        self.log("loss", loss)
        self.log("train_perplexity", torch.exp(nll))
        self.log("learning_rate", learning_rate)

    def on_save_checkpoint(self, checkpoint: dict[str, Any]) -> None:
        """Check the gradients, so that no weights that took a non-finite one are written."""
        self._check_norms()
        checkpoint[ACCUMULATE] = self.trainer.accumulate_grad_batches
        checkpoint[TRAINING] = training_digest(self.config)
        checkpoint[STEP_KIND] = self.step_kind

    def on_load_checkpoint(self, checkpoint: dict[str, Any]) -> None:
        """Refuse the checkpoint of another training, and let the Trainer continue with another
        number of micro-batches per step.
        """
        if self._trainer is not None and "optimizer_states" in checkpoint:
            check_training(checkpoint, self.config, self.trainer.ckpt_path)
            recount_batches(checkpoint, self.trainer.accumulate_grad_batches)
            self.step_kind = self._begun_as = checkpoint.get(STEP_KIND, self.step_kind)

    @_without_stop_iteration
    def validation_step(self, batch: Batch, batch_idx: int) -> None:
        """Add up the plain loss over the validation set."""
        del batch_idx
        _, nll = self.loss(batch)
        self._valid_sums += torch.stack([nll.double(), batch.tgt[:, 1:].ne(PAD_ID).sum()])

    def on_validation_epoch_start(self) -> None:
        """Reset the sums."""
        self._valid_sums = torch.zeros(2, dtype=torch.float64, device=self.device)

    def on_validation_epoch_end(self) -> None:
        """Log loss and perplexity per word-piece, summed over all ranks."""
        nll, tokens = self.trainer.strategy.reduce(self._valid_sums, reduce_op="sum").tolist()
        self.log("valid_loss", nll / tokens)
        self.log("valid_perplexity", math.exp(min(nll / tokens, 700.0)))

    def _at_log_step(self) -> bool:
        return (self.global_step + 1) % self.config.training.log_every_steps == 0
