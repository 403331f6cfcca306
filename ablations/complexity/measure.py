"""Time, memory and FLOPs of layers at one length and width."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Collection
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils.flop_counter import FlopCounterMode, conv_flop_count

from ablations.complexity.layers import make_layer
from ablations.complexity.paper import RECURRENT
from ablations.complexity.results import LEAST_SAMPLES, MOST_SAMPLES, Timing
from experiments.workload import wait_for

# A sample is the mean over as many passes as take this long, so that a clock's ticks do not matter.
_SAMPLE_SECONDS = 0.005
# From so many on, no more samples are taken of a point.
_POINT_SECONDS = 4.0


def measure_layers(
    names: Collection[str],
    n: int,
    d: int,
    device: torch.device,
    show: Callable[[float], None] = lambda share: None,
) -> dict[str, Timing]:
    """Time each layer forward and backward, one sample of every layer after another.

    So a slow spell of the machine affects all layers alike, and samples of the same number can be
    compared.

    Args:
        show: called with the share of the samples that have been taken
    """
    layers = {name: _Layer(name, n, d, device) for name in names}
    passes = {name: layer.warm_up() for name, layer in layers.items()}
    memory = {name: layer.memory() for name, layer in layers.items()}
    forward: dict[str, list[float]] = {name: [] for name in names}
    backward: dict[str, list[float]] = {name: [] for name in names}
    start = time.perf_counter()
    for sample in range(MOST_SAMPLES):
        if sample >= LEAST_SAMPLES and time.perf_counter() - start > _POINT_SECONDS:
            break
        for name, layer in layers.items():
            taken = [layer.seconds() for _ in range(passes[name])]
            forward[name].append(sum(there for there, _ in taken) / len(taken))
            backward[name].append(sum(back for _, back in taken) / len(taken))
        show(min(1.0, (sample + 1) / LEAST_SAMPLES))
    return {
        name: Timing(forward=forward[name], backward=backward[name], memory=memory[name])
        for name in names
    }


class _Layer:
    """A layer with an input of one sequence and the gradient of its output, in fp32."""

    def __init__(self, name: str, n: int, d: int, device: torch.device) -> None:
        torch.manual_seed(0)
        self._layer = make_layer(name, d, device)
        self._input = torch.randn(1, n, d, device=device, requires_grad=True)
        self._gradient = torch.randn(1, n, d, device=device)
        self._device = device

    def seconds(self) -> tuple[float, float]:
        """How long one pass takes forward, and then backward to the input and the weights."""
        start = self._clock()
        output = self._layer(self._input)
        middle = self._clock()
        self._backward(output)
        return middle - start, self._clock() - middle

    def _clock(self) -> float:
        """Seconds; on a CPU those that it has spent on this process, without other work's."""
        if self._device.type == "cpu":
            return time.process_time()
        wait_for(self._device)
        return time.perf_counter()

    def _backward(self, output: Tensor) -> None:
        inputs = [self._input, *self._layer.parameters()]
        torch.autograd.grad(output, inputs, self._gradient)

    def warm_up(self) -> int:
        """Run it until it has its usual speed; the passes of a sample."""
        self.seconds()
        return math.ceil(_SAMPLE_SECONDS / sum(self.seconds()))

    def memory(self) -> int:
        """Bytes that training needs in addition to weights and input.

        On a GPU, the peak of what is allocated during a pass less what was before. On a CPU, where
        torch keeps no such account: what the forward pass saves for the backward one, each piece
        of memory once, with the input if it is saved.
        """
        if self._device.type == "cuda":
            before = torch.cuda.memory_allocated(self._device)
            torch.cuda.reset_peak_memory_stats(self._device)
            self._backward(self._layer(self._input))
            return torch.cuda.max_memory_allocated(self._device) - before
        weights = {weight.untyped_storage().data_ptr() for weight in self._layer.parameters()}
        saved: dict[int, int] = {}

        def pack(tensor: Tensor) -> Tensor:
            storage = tensor.untyped_storage()
            if storage.data_ptr() not in weights:
                saved[storage.data_ptr()] = storage.nbytes()
            return tensor

        def unpack(tensor: Tensor) -> Tensor:
            return tensor

        with torch.autograd.graph.saved_tensors_hooks(pack, unpack):
            output = self._layer(self._input)  # kept, so that no memory is used twice
        del output
        return sum(saved.values())


def count_flops(name: str, n: int, d: int) -> int:
    """FLOPs of the products of a pass forward and backward, a multiplication and addition as two.

    torch counts them on its ``meta`` device, which computes nothing and has no fused attention
    that would hide its products. Of an LSTM, which would be unrolled there in minutes, they are
    2·8d² for each position (eight products of a vector with a square matrix), and twice that
    backward.
    """
    if name == RECURRENT:
        return 3 * 2 * 8 * n * d**2
    device = torch.device("meta")
    layer: nn.Module = make_layer(name, d, device)
    x = torch.empty(1, n, d, device=device, requires_grad=True)
    # torch 2.13's own formula forgets that a separable convolution has groups.
    formulas: dict[Any, Callable[..., int]] = {
        torch.ops.aten.convolution_backward: _convolution_backward
    }
    with FlopCounterMode(display=False, custom_mapping=formulas) as counter:
        output: Tensor = layer(x)
        output.backward(torch.empty_like(output))  # the counter does not support autograd.grad
    return int(counter.get_total_flops())


def _convolution_backward(
    gradient: list[int], x: list[int], weight: list[int], *_: object, **_more: object
) -> int:
    """The gradients of input and weight, each of which takes as many products as the output."""
    return 2 * conv_flop_count(x, weight, gradient)
