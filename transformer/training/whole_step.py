"""A training step in one piece, on one CUDA device."""

from __future__ import annotations

import warnings
from collections.abc import Callable

import torch
from torch import Tensor
from torch.optim import Optimizer

from transformer.config import Config
from transformer.data.batches import Batch
from transformer.kernels.captured_step import CapturedStep, Inputs
from transformer.model.encoder_decoder import Transformer
from transformer.model.packed import PackedTokens
from transformer.training.loss import smoothed_cross_entropy, states_and_targets
from transformer.training.packing import PackedBatch, pack, room, unpack
from transformer.training.precision import autocast
from transformer.training.step_kinds import (
    NotPossibleError,
    StepKind,
    can_capture,
    check_capturing,
    check_packing,
    small_batch,
    wanted_kind,
)

Tokens = Tensor | PackedTokens


class WholeStep:
    """Forward, backward and the optimizer's step on a batch, ``captured`` or ``packed``.

    Args:
        packs: whether sentences are laid end to end, and the loss is compiled
    """

    def __init__(self, model: Transformer, config: Config, packs: bool) -> None:
        self._model, self._config, self._packs = model, config, packs
        self._room = room(config.data.tokens_per_batch)
        self._longest = config.data.max_length + 1  # word-pieces, and the end
        self._packed_sums: Callable[..., tuple[Tensor, Tensor]] = self._sums_of_packed
        if packs:  # of one shape, so nothing is compiled twice; a break in the graph is an error
            self._packed_sums = torch.compile(self._sums_of_packed, dynamic=False, fullgraph=True)
        self._step: CapturedStep | None = None

    def try_out(self) -> None:
        """Check that the model can take such steps, and compile it.

        Raises:
            Exception: of any kind if it does not.
        """
        if not self._packs:
            return
        check_packing(self._model)
        self._model.embedding.encode_positions(0, self._longest)  # once, as it may make a table
        self._gradient()

    def check_capturing(self) -> None:
        """Check that a step can be captured.

        Raises:
            NotPossibleError: if it cannot.
        """
        check_capturing(self._model, self._gradient)

    def _gradient(self) -> None:
        """Compute the gradient for a few sentences, and drop it."""
        batch = self.prepare(small_batch(self._config.model.vocab_size))
        smoothed, _ = self.sums(_inputs_of(batch.to(self._model.output.weight.device)))
        weights = [weight for weight in self._model.parameters() if weight.requires_grad]
        torch.autograd.grad(smoothed, weights, allow_unused=True)

    def begin(self, optimizer: Optimizer, captures: bool) -> None:
        """Train with ``optimizer``, whose state has been loaded."""
        clip_norm = self._config.training.clip_norm
        self._step = CapturedStep(self.sums, self._model, optimizer, clip_norm, captures)

    def prepare(self, batch: Batch) -> Batch | PackedBatch:
        """A batch on the CPU, laid end to end if steps are packed and it has room."""
        packed = pack(batch, self._room, self._longest) if self._packs else None
        return batch if packed is None else packed

    def __call__(self, batch: Batch | PackedBatch) -> tuple[Tensor, Tensor, Tensor]:
        """Take a step on a prepared batch on the device.

        Returns:
            sums over its targets of the smoothed loss and of the plain one, and the norm of the
            gradient of the smoothed loss per target
        """
        assert self._step is not None, "begin comes first"
        return self._step(_inputs_of(batch), batch.shards / batch.target_tokens)

    def sums(self, inputs: Inputs) -> tuple[Tensor, Tensor]:
        """Sums over the targets of the smoothed loss and of the plain one."""
        with autocast(self._config, inputs[0].device):
            if len(inputs) == 2:
                src, tgt = inputs
                return self._sums_of(src, tgt[:, :-1], tgt[:, 1:])
            return self._packed_sums(*inputs)

    def _sums_of_packed(self, *tensors: Tensor) -> tuple[Tensor, Tensor]:
        return self._sums_of(*unpack(tensors, self._longest))

    def _sums_of(self, src: Tokens, inputs: Tokens, targets: Tensor) -> tuple[Tensor, Tensor]:
        states, targets = states_and_targets(self._model, src, inputs, targets)
        smoothing, vocab_size = self._config.training.label_smoothing, self._config.model.vocab_size
        weight = self._model.output.weight
        return smoothed_cross_entropy(states, weight, targets, smoothing, vocab_size, padded=True)


def _inputs_of(batch: Batch | PackedBatch) -> Inputs:
    return (batch.src, batch.tgt) if isinstance(batch, Batch) else batch.tensors


def choose_steps(
    model: Transformer, config: Config, optimizer: Optimizer, begun: StepKind | None, is_whole: bool
) -> tuple[StepKind, WholeStep | None]:
    """The kind of a training's steps, and the object that takes captured or packed ones.

    If the fastest kind is not possible, one line says why, and slower steps are taken.

    Args:
        begun: the kind with which training began, if it is resumed
        is_whole: whether one device takes whole batches, see :mod:`transformer.training.step_kinds`
    """
    device = model.output.weight.device
    kind = begun or wanted_kind(config, device, is_whole)
    if kind in ("plain", "compiled"):
        return kind, None
    slower: StepKind = "compiled" if config.training.compile else "plain"
    step = WholeStep(model, config, packs=kind == "packed")
    try:
        if not (is_whole and can_capture(device)):
            raise NotPossibleError(f"training began with {kind} steps, which need one GPU")
        step.try_out()
        captures = _may_capture(step, kind)
    except Exception as error:  # as of a compiler, or of a model under it
        reason = str(error).strip().partition("\n")[0] or type(error).__name__
        warnings.warn(f"steps are {slower}: {reason}", stacklevel=2)
        return slower, None
    step.begin(optimizer, captures)
    return kind, step


def _may_capture(step: WholeStep, kind: StepKind) -> bool:
    """Whether steps can be captured; packed steps are worth taking even if not."""
    try:
        step.check_capturing()
    except NotPossibleError as error:
        if kind != "packed":
            raise
        warnings.warn(f"steps are not captured: {error}", stacklevel=3)
        return False
    return True
