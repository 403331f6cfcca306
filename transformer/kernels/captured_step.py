"""A whole training step as one CUDA graph.

Plain form: the same function, its operations launched one by one; the result does not show which of
the two ran. Small operations take longer to launch than to run, so a small model's step is several
times as fast in one launch. Dropout draws from torch's generator, whose seed and offset a replay
reads at its start: seeded before each step, it draws the same masks as without graphs.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Generator, Sequence
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.utils import clip_grads_with_norm_, get_total_norm
from torch.optim import Adam, AdamW, Optimizer

Inputs = tuple[Tensor, ...]
Shapes = tuple[torch.Size, ...]
#: Sums over the targets of a batch: of the loss to train on, and of one without a gradient.
Sums = Callable[[Inputs], tuple[Tensor, Tensor]]


class CapturedStep:
    """Forward, backward, the gradient's norm, its clipping and the optimizer's step.

    A shape is captured when it occurs for the second time: at the first, libraries choose and
    compile its kernels. Optimizers other than torch's fused Adam and AdamW may read numbers from
    the device, so they take their step after the replay. All graphs share one pool of memory, since
    no replay needs what another one has left there.

    Args:
        sums: the loss; the same inputs must always launch the same operations
        model: its weights are trained; tensors that its modules hold are kept for the graphs
        optimizer: the optimizer of these weights
        clip_norm: the largest norm of the gradient; None does not limit it
        captures: False launches each operation by itself
    """

    def __init__(
        self,
        sums: Sums,
        model: nn.Module,
        optimizer: Optimizer,
        clip_norm: float | None = None,
        captures: bool = True,
    ) -> None:
        self._sums, self._model, self._optimizer = sums, model, optimizer
        self._clip_norm, self._captures = clip_norm, captures
        self._parameters = [weight for weight in model.parameters() if weight.requires_grad]
        self._device = self._parameters[0].device
        self._includes_optimizer = type(optimizer) in (Adam, AdamW) and all(
            group["fused"] for group in optimizer.param_groups
        )
        # What changes from step to step is read from the device.
        self._scale = torch.zeros((), device=self._device)
        self._rates = [torch.zeros((), device=self._device) for _ in optimizer.param_groups]
        self._numbers = torch.zeros(3, device=self._device)
        self._gradients: list[Tensor | None] | None = None
        self._seen = set[Shapes]()
        self._replays: dict[Shapes, Replay] = {}
        self._pool = torch.cuda.graph_pool_handle() if self._device.type == "cuda" else None

    @property
    def graphs(self) -> int:
        """How many shapes have been captured."""
        return len(self._replays)

    def __call__(self, inputs: Inputs, scale: float) -> tuple[Tensor, Tensor, Tensor]:
        """Take a step with the optimizer's current learning rates.

        Args:
            inputs: the inputs of ``sums``, on the device
            scale: the factor by which the loss is multiplied

        Returns:
            both sums, and the norm of the gradient before clipping
        """
        self._scale.fill_(scale)
        for rate, group in zip(self._rates, self._optimizer.param_groups, strict=True):
            rate.fill_(group["lr"])
        shapes = tuple(tensor.shape for tensor in inputs)
        if self._captures and shapes in self._seen and shapes not in self._replays:
            self._capture(shapes, inputs)
        self._seen.add(shapes)
        if shapes in self._replays:
            self._replays[shapes](inputs)
        else:
            self._run(inputs)
        if not self._includes_optimizer:
            self._step_with(self._gradients or [])
        smoothed, nll, norm = self._numbers.clone().unbind()
        return smoothed, nll, norm

    def _capture(self, shapes: Shapes, inputs: Inputs) -> None:
        """Capture a shape; if that fails, before anything has run, steps are launched instead."""
        try:
            self._replays[shapes] = Replay(self._run, inputs, self._pool, _held_by(self._model))
        except RuntimeError as error:
            reason = str(error).strip().partition("\n")[0]
            warnings.warn(f"steps are not captured any more: {reason}", stacklevel=2)
            self._captures = False
            if self._device.type == "cuda":
                _renew_generator(self._device)

    def _run(self, inputs: Inputs) -> None:
        """The operations that are captured."""
        smoothed, nll = self._sums(inputs)
        # Not backward(), which may wait for the stream on which a weight was first used.
        loss = smoothed * self._scale
        gradients = torch.autograd.grad(loss, self._parameters, allow_unused=True)
        norm = get_total_norm(_existing(gradients))
        if self._clip_norm is not None:
            with _gradients_of(self._parameters, gradients):
                clip_grads_with_norm_(self._parameters, self._clip_norm, norm)
        self._numbers.copy_(torch.stack([smoothed.detach(), nll, norm]))
        if self._includes_optimizer:
            with self._on_device():
                self._step_with(gradients)
        else:
            self._keep(gradients)

    def _step_with(self, gradients: Sequence[Tensor | None]) -> None:
        with _gradients_of(self._parameters, gradients):
            self._optimizer.step()

    def _keep(self, gradients: Sequence[Tensor | None]) -> None:
        """Copy the gradients to where the optimizer finds them after a replay."""
        if self._gradients is None:
            self._gradients = [x if x is None else torch.empty_like(x) for x in gradients]
        for kept, gradient in zip(self._gradients, gradients, strict=True):
            if kept is not None and gradient is not None:
                kept.copy_(gradient)

    @contextmanager
    def _on_device(self) -> Generator[None]:
        """Let Adam read its learning rate from the device within this context.

        Outside, the schedule and checkpoints find plain numbers.
        """
        groups = self._optimizer.param_groups
        is_capturing = self._pool is not None and torch.cuda.is_current_stream_capturing()
        before = [(group["lr"], group["capturable"]) for group in groups]
        for group, rate in zip(groups, self._rates, strict=True):
            group["lr"], group["capturable"] = rate, is_capturing  # else Adam would warn
        try:
            yield
        finally:
            for group, (rate, capturable) in zip(groups, before, strict=True):
                group["lr"], group["capturable"] = rate, capturable


class Replay:
    """A captured function of static copies of its inputs; on a CPU, the function is called.

    Args:
        pool: the pool of the graph's memory; None on a CPU
        kept: tensors that the graph reads at their present addresses, even if a module replaces
            them
    """

    def __init__(
        self, function: Callable[[Inputs], None], inputs: Inputs, pool: Any, kept: list[Tensor]
    ) -> None:
        self._inputs = tuple(tensor.clone() for tensor in inputs)
        self._kept = kept
        if pool is None:
            self._replay = lambda: function(self._inputs)
            return
        graph = torch.cuda.CUDAGraph()
        # Other threads, such as the one that prepares batches, continue meanwhile.
        with torch.cuda.graph(graph, pool=pool, capture_error_mode="thread_local"):
            function(self._inputs)
        self._replay = graph.replay

    def __call__(self, inputs: Inputs) -> None:
        for static, tensor in zip(self._inputs, inputs, strict=True):
            static.copy_(tensor, non_blocking=True)
        self._replay()


def _renew_generator(device: torch.device) -> None:
    """Give torch's generator a new state: the one that a failed capture used can draw no more. It
    starts again at its seed, as it does in each step.
    """
    generator = torch.cuda.default_generators[device.index or 0]
    renewed = torch.Generator(device).manual_seed(generator.initial_seed())
    generator.graphsafe_set_state(renewed.graphsafe_get_state())


def _existing(gradients: Sequence[Tensor | None]) -> list[Tensor]:
    """The gradients of the weights that the loss uses."""
    return [gradient for gradient in gradients if gradient is not None]


@contextmanager
def _gradients_of(
    parameters: Sequence[Tensor], gradients: Sequence[Tensor | None]
) -> Generator[None]:
    """Give ``parameters`` these gradients within this context."""
    for parameter, gradient in zip(parameters, gradients, strict=True):
        parameter.grad = gradient
    try:
        yield
    finally:
        for parameter in parameters:
            parameter.grad = None


def _held_by(model: nn.Module) -> list[Tensor]:
    """The tensors among the attributes of a model's modules, such as tables of sinusoids."""
    values = [value for module in model.modules() for value in vars(module).values()]
    return [value for value in values if isinstance(value, Tensor)]
