"""The training of section 5 as a LightningModule."""

from __future__ import annotations

import functools
import math
import warnings
from collections.abc import Callable, Mapping
from contextlib import nullcontext
from typing import Any, cast

import numpy as np
import torch
from lightning.pytorch.core.optimizer import LightningOptimizer
from torch import Tensor
from torch.optim import Optimizer

from transformer.config import PAD_ID, Config, training_digest
from transformer.data.batches import Batch
from transformer.errors import InputError
from transformer.kernels.halves import loss_of_halves
from transformer.training.checkpoints import (
    ACCUMULATE,
    SCORED,
    STEP_KIND,
    TRAINING,
    check_training,
    recount_batches,
)
from transformer.training.logged import LoggedModule, without_stop_iteration
from transformer.training.loss import smoothed_cross_entropy, states_and_targets
from transformer.training.optimizer import learning_rate, make_adam
from transformer.training.packing import PackedBatch
from transformer.training.precision import autocast
from transformer.training.step_kinds import OF_STEPS, StepKind, takes_whole_batches
from transformer.training.whole_step import WholeStep, choose_steps
from transformer.variant import build, current

TrainingStep = Callable[["TransformerModule", Any, int], Tensor]


def _as_step(step: TrainingStep) -> TrainingStep:
    """Seed dropout before a step and check its loss."""

    @functools.wraps(step)
    def call(self: TransformerModule, batch: Batch | PackedBatch, batch_idx: int) -> Tensor:
        return self.take_step(step, batch, batch_idx)

    return call


class TransformerModule(LoggedModule):
    """The Transformer with its loss, optimizer and schedule.

    A method that trains otherwise is a subclass that replaces some of :meth:`states`, :meth:`loss`,
    :meth:`optimizer`, :meth:`learning_rate`, :meth:`training_step` and :meth:`scored_weights`, or a
    hook of Lightning's. Its keyword-only arguments are its options.

    Everything that affects the result is in here and in the data module, precision and gradient
    clipping included, so it is the same in any Trainer. Dropout is seeded for each (seed, batch,
    shard): a resumed run continues bit for bit, and a device that accumulates gradients draws the
    same masks as several devices without accumulation.
    """

    def __init_subclass__(cls, **kwargs: Any) -> None:
        super().__init_subclass__(**kwargs)
        if (step := vars(cls).get("training_step")) is not None:
            cls.training_step = _as_step(step)

    def __init__(self, config: Config) -> None:
        super().__init__(config)
        if type(self) is TransformerModule and current(config).training.method is not None:
            raise InputError("this configuration names a method: make_module(config) makes it")
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(config.training.seed)
            self.model = build(config.model)
        self._compiled_sums: Callable[..., tuple[Tensor, Tensor]] | None = None
        is_compiled = config.training.compile and not self._replaces("states", "sums")
        self.step_kind: StepKind = "compiled" if is_compiled else "plain"
        self._compile(self.step_kind)
        self._begun_as: StepKind | None = None  # if training is resumed
        self._whole_step: WholeStep | None = None
        self._in_step = False
        self._nll: Tensor | None = None  # of the step's batch, per target word-piece
        self._norm: Tensor | None = None  # of the gradient, if the step is in one piece
        self._valid_sums = torch.zeros(2, dtype=torch.float64)
        self._trained: dict[str, Tensor] | None = None  # while others are validated

    def _replaces(self, *names: str) -> bool:
        """Whether a method replaces one of these."""
        own, paper = type(self), TransformerModule
        return any(getattr(own, name) is not getattr(paper, name) for name in names)

    def optimizer(self) -> Optimizer:
        """Adam (section 5.3), with learning rates of 1, which :meth:`learning_rate` multiplies."""
        return make_adam(self.model.parameters(), self.config.training)

    def learning_rate(self, step: int) -> float:
        """The learning rate of ``step``, which counts from 1: that of the configuration's
        ``schedule``.
        """
        return learning_rate(step, self.config.model.d_model, self.config.training)

    def configure_optimizers(self) -> Any:
        """The optimizer, with the learning rate of each step."""
        optimizer = self.optimizer()
        schedule = torch.optim.lr_scheduler.LambdaLR(optimizer, self._learning_rate_after)
        return {"optimizer": optimizer, "lr_scheduler": {"scheduler": schedule, "interval": "step"}}

    def _learning_rate_after(self, steps: int) -> float:
        return self.learning_rate(steps + 1)

    def _compile(self, kind: StepKind) -> None:
        """Compile the loss of padded batches, or not."""
        if kind != "compiled":
            self._compiled_sums = None
        elif self._compiled_sums is None:
            # Otherwise DDP cuts the graph where its buckets end.
            torch._dynamo.config.optimize_ddp = False
            self._compiled_sums = torch.compile(self._sums, dynamic=True)

    def states(self, batch: Batch) -> tuple[Tensor, Tensor]:
        """The decoder's output for each target word-piece, ``(targets, d_model)``, and these
        word-pieces, ``(targets,)``; each call draws new dropout masks.
        """
        inputs, targets = batch.tgt[:, :-1], batch.tgt[:, 1:]
        return states_and_targets(self.model, batch.src, inputs, targets, batch.real_targets)

    def loss(self, states: Tensor, targets: Tensor) -> tuple[Tensor, Tensor]:
        """Sums over the ``targets`` of the loss to train on, here the label-smoothed cross-entropy,
        and of the plain one, which is only logged, in nats.
        """
        smoothing, vocab_size = self.config.training.label_smoothing, self.config.model.vocab_size
        weight = self.model.output.weight
        return smoothed_cross_entropy(states, weight, targets, smoothing, vocab_size)

    def sums(self, batch: Batch) -> tuple[Tensor, Tensor]:
        """The :meth:`loss` of a batch."""
        with autocast(self.config, self.device):
            return self.loss(*self.states(batch))

    def _sums(
        self, src: Tensor, inputs: Tensor, targets: Tensor, real_targets: Tensor
    ) -> tuple[Tensor, Tensor]:
        """Like ``sums``, in a form that can be compiled."""
        return self.loss(*states_and_targets(self.model, src, inputs, targets, real_targets))

    def scored_weights(self) -> Mapping[str, Tensor] | None:
        """The weights that are validated, scored and exported, named as in ``self.model``; None for
        those that are trained.
        """
        return None

    def setup(self, stage: str) -> None:
        """Silence Lightning's warning of the hook below, which is meant to be called."""
        hook = "You have overridden `on_before_batch_transfer` in `LightningModule`"
        warnings.filterwarnings("ignore", hook)

    def on_train_start(self) -> None:
        """Choose how steps are computed, now that weights and the optimizer's state are loaded."""
        self.step_kind, self._whole_step = choose_steps(
            self.model,
            self.config,
            self.trainer.optimizers[0],
            self._begun_as,
            takes_whole_batches(self.trainer) and not self._replaces(*OF_STEPS),
        )
        if self._replaces("states", "sums"):
            self.step_kind = "plain"
        self._compile(self.step_kind)

    def on_before_batch_transfer(self, batch: Batch, dataloader_idx: int) -> Batch | PackedBatch:
        """Lay the sentences end to end, where steps are packed."""
        if self._whole_step is None or not self.trainer.training:
            return batch
        return self._whole_step.prepare(batch)

    def training_loss(self, batch: Batch) -> tuple[Tensor, Tensor]:
        """The same as ``sums``, computed in the way that is fastest to differentiate.

        Rounding and dropout masks differ.
        """
        if self._compiled_sums is not None:
            # Sliced here: torch 2.11 cannot compile for GPUs what depends on the sizes of slices.
            inputs, targets = batch.tgt[:, :-1], batch.tgt[:, 1:]
            with autocast(self.config, self.device):
                return self._compiled_sums(batch.src, inputs, targets, batch.real_targets)
        has_threads = self.device.type == "cpu" and torch.get_num_threads() > 1
        # A loss of a method's own may be more than a sum over sentences.
        if has_threads and len(batch.src) > 1 and not self._replaces("states", "loss", "sums"):
            trained = [parameter for parameter in self.parameters() if parameter.requires_grad]
            return loss_of_halves(self.sums, batch.halves(), trained)
        return self.sums(batch)

    @_as_step
    def training_step(self, batch: Batch | PackedBatch, batch_idx: int) -> Tensor:
        """The loss of this shard's batch, as :meth:`per_target` scales its sums."""
        del batch_idx
        if self._whole_step is None:
            return self.per_target(batch, *self.training_loss(cast(Batch, batch)))
        loss, nll, self._norm = self._whole_step(batch)
        return self.per_target(batch, loss, nll)

    def per_target(self, batch: Batch | PackedBatch, loss: Tensor, nll: Tensor) -> Tensor:
        """Scale sums over this shard's targets, so that shards average to the loss per target.

        ``loss`` is returned; ``nll``, the plain loss, is kept to log ``train_perplexity``.
        """
        # Lightning averages over ranks and micro-batches, so each scales its sum by their number.
        scale = batch.shards / batch.target_tokens
        self._nll = nll.detach() * scale
        return loss * scale

    @without_stop_iteration
    def take_step(self, step: TrainingStep, batch: Batch | PackedBatch, batch_idx: int) -> Tensor:
        """Call a ``training_step`` with the dropout masks that belong to this batch."""
        if self._in_step:  # called by that of a subclass
            return step(self, batch, batch_idx)
        self._seed(self.config.training.seed, batch.number, batch.shard)
        self._batch_number, self._nll, self._norm = batch.number, None, None
        if batch_idx % self.trainer.accumulate_grad_batches == 0:
            self._begin_step()
        self._in_step = True
        is_own = self._replaces("training_step")
        try:
            with autocast(self.config, self.device) if is_own else nullcontext():
                loss: Any = step(self, batch, batch_idx)
        finally:
            self._in_step = False
        if not isinstance(loss, Tensor) or loss.numel() != 1:
            raise InputError(
                f"training_step of {type(self).__name__} returned {type(loss).__name__}: return "
                "one number in a tensor, such as self.per_target(batch, loss, nll)"
            )
        if self._is_logged_step():
            value = loss.detach().reshape(())
            nll = torch.full_like(value, math.nan) if self._nll is None else self._nll
            self._note(torch.stack([value, nll]))
        if self._norm is not None:
            self._end_step(self._norm, self.trainer.optimizers[0])
        return loss

    def _seed(self, *numbers: int) -> None:
        seed = int(np.random.SeedSequence(numbers).generate_state(1)[0])
        # torch.manual_seed also queues a call for absent devices: 1 ms, and memory never freed.
        torch.default_generator.manual_seed(seed)
        if self.device.type == "cuda":
            torch.cuda.manual_seed(seed)

    # Captured and packed steps are taken within training_step, so that Lightning only counts them.

    @without_stop_iteration
    def backward(self, *args: Any, **kwargs: Any) -> None:
        """Differentiate as Lightning does, unless the step is taken already."""
        if self._whole_step is None:
            super().backward(*args, **kwargs)

    def optimizer_zero_grad(self, *args: Any, **kwargs: Any) -> None:
        """Reset gradients as Lightning does, unless the step is taken already."""
        if self._whole_step is None:
            super().optimizer_zero_grad(*args, **kwargs)

    @without_stop_iteration
    def optimizer_step(
        self,
        epoch: int,
        batch_idx: int,
        optimizer: Optimizer | LightningOptimizer,
        optimizer_closure: Callable[[], Any] | None = None,
    ) -> None:
        """Step as Lightning does, unless the step is taken already."""
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

    def on_save_checkpoint(self, checkpoint: dict[str, Any]) -> None:
        """Check the gradients, so that no weights that took a non-finite one are written."""
        self._check_norms()
        checkpoint[ACCUMULATE] = self.trainer.accumulate_grad_batches
        checkpoint[TRAINING] = training_digest(self.config)
        checkpoint[STEP_KIND] = self.step_kind
        if (weights := self.scored_weights()) is not None:
            checkpoint[SCORED] = {name: weight.detach() for name, weight in weights.items()}

    def on_load_checkpoint(self, checkpoint: dict[str, Any]) -> None:
        """Refuse the checkpoint of another training, and let the Trainer continue with another
        number of micro-batches per step.
        """
        if self._trainer is not None and "optimizer_states" in checkpoint:
            check_training(checkpoint, self.config, self.trainer.ckpt_path)
            recount_batches(checkpoint, self.trainer.accumulate_grad_batches)
            self.step_kind = self._begun_as = checkpoint.get(STEP_KIND, self.step_kind)

    @without_stop_iteration
    def validation_step(self, batch: Batch, batch_idx: int) -> None:
        """Add up the plain loss over the validation set, whatever a method trains on."""
        del batch_idx
        with autocast(self.config, self.device):
            _, nll = TransformerModule.loss(self, *TransformerModule.states(self, batch))
        self._valid_sums += torch.stack([nll.double(), batch.tgt[:, 1:].ne(PAD_ID).sum()])

    def on_validation_epoch_start(self) -> None:
        """Reset the sums, and load the weights to score into the model."""
        self._valid_sums = torch.zeros(2, dtype=torch.float64, device=self.device)
        if (weights := self.scored_weights()) is not None:
            trained = self.model.state_dict().items()
            self._trained = {name: weight.detach().clone() for name, weight in trained}
            self.model.load_state_dict(weights)

    def on_validation_epoch_end(self) -> None:
        """Log loss and perplexity per word-piece, summed over all ranks."""
        if self._trained is not None:
            self.model.load_state_dict(self._trained)
            self._trained = None
        nll, tokens = self.trainer.strategy.reduce(self._valid_sums, reduce_op="sum").tolist()
        self.log("valid_loss", nll / tokens)
        self.log("valid_perplexity", math.exp(min(nll / tokens, 700.0)))
