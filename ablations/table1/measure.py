"""Measure time, memory and FLOPs of layers."""

from __future__ import annotations

import math
import time
from collections.abc import Collection
from functools import cache

import torch
from torch import Tensor, nn
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.utils.flop_counter import FlopCounterMode

from ablations.table1 import paper
from ablations.table1.layers import Convolution, make_layer
from ablations.table1.measurements import Timing

# Samples of each layer: the least, and the most where they are quick.
_LEAST_SAMPLES, _MOST_SAMPLES = 5, 15
# A sample is the mean over as many passes as take this long, so that a clock's ticks do not matter.
_SAMPLE_SECONDS = 0.005
# From so many on, no more samples are taken than the least.
_POINT_SECONDS = 4.0
_WIDTH = 64  # of layers whose steps are counted
# The operations of autograd's graph that multiply matrices.
_PRODUCTS = ("AddmmBackward", "MmBackward", "BmmBackward", "ConvolutionBackward")


def measure_layers(
    names: Collection[str], n: int, d: int, device: torch.device
) -> dict[str, Timing]:
    """Time each layer forward and backward on one sequence, a sample of every layer in turn.

    So a slow spell of the machine affects all layers alike, and samples of the same number can be
    compared.
    """
    torch.manual_seed(0)
    layers = {name: make_layer(name, d, device) for name in names}
    x = torch.randn(1, n, d, device=device, requires_grad=True)
    timings: dict[str, Timing] = {}
    passes: dict[str, int] = {}
    for name, layer in layers.items():
        _time_pass(layer, x)
        passes[name] = math.ceil(_SAMPLE_SECONDS / sum(_time_pass(layer, x)))
        timings[name] = Timing(forward=[], backward=[], memory=_memory(layer, x))
    start = time.perf_counter()
    for sample in range(_MOST_SAMPLES):
        if sample >= _LEAST_SAMPLES and time.perf_counter() - start > _POINT_SECONDS:
            break
        for name, layer in layers.items():
            taken = [_time_pass(layer, x) for _ in range(passes[name])]
            timings[name].forward.append(sum(there for there, _ in taken) / len(taken))
            timings[name].backward.append(sum(back for _, back in taken) / len(taken))
    return timings


def _time_pass(layer: nn.Module, x: Tensor) -> tuple[float, float]:
    """Seconds of a pass forward, and then backward to the input and the weights."""
    start = _clock(x.device)
    output = layer(x)
    middle = _clock(x.device)
    _backward(layer, x, output)
    return middle - start, _clock(x.device) - middle


def _backward(layer: nn.Module, x: Tensor, output: Tensor) -> None:
    torch.autograd.grad(output, [x, *layer.parameters()], x.detach())


def _clock(device: torch.device) -> float:
    """Seconds; on a CPU those that it has spent on this process, without other work's."""
    if device.type == "cpu":
        return time.process_time()
    torch.cuda.synchronize(device)
    return time.perf_counter()


def _memory(layer: nn.Module, x: Tensor) -> int:
    """Bytes that training needs in addition to weights and input.

    On a GPU, the peak of what is allocated during a pass less what was before. On a CPU, where
    torch keeps no such account: what the forward pass saves for the backward one, each piece of
    memory once, with the input if it is saved.
    """
    if x.device.type == "cuda":
        before = torch.cuda.memory_allocated(x.device)
        torch.cuda.reset_peak_memory_stats(x.device)
        _backward(layer, x, layer(x))
        return torch.cuda.max_memory_allocated(x.device) - before
    weights = {weight.untyped_storage().data_ptr() for weight in layer.parameters()}
    saved: dict[int, int] = {}

    def pack(tensor: Tensor) -> Tensor:
        storage = tensor.untyped_storage()
        if storage.data_ptr() not in weights:
            saved[storage.data_ptr()] = storage.nbytes()
        return tensor

    with torch.autograd.graph.saved_tensors_hooks(pack, lambda tensor: tensor):
        output = layer(x)  # kept, so that no memory is used twice
    del output
    return sum(saved.values())


def count_flops(name: str, n: int, d: int) -> int:
    """FLOPs of the products of a pass forward and backward, a multiplication and addition as two.

    torch counts those forward on its ``meta`` device, which computes nothing and has no fused
    attention that would hide them; backward, each has two of the same size. An LSTM, which would
    be unrolled in minutes, does at every position what it does at one.
    """
    device = torch.device("meta")
    length = 1 if name == paper.RECURRENT else n
    with FlopCounterMode(display=False) as counter:
        make_layer(name, d, device)(torch.empty(1, length, d, device=device))
    return 3 * counter.get_total_flops() * (n // length)


def sequential_operations(name: str, n: int) -> int:
    """The longest chain of matrix products in a layer, each of which needs the one before.

    It is read from the graph that autograd records of the layer on a CPU in double precision, for
    which torch has no fused LSTM: it is carried out position by position.
    """
    x = torch.randn(1, n, _WIDTH, dtype=torch.float64, requires_grad=True)
    with sdpa_kernel(SDPBackend.MATH):
        end = make_layer(name, _WIDTH).double()(x).grad_fn
    longest: dict[torch.autograd.graph.Node, int] = {}
    waiting = [end]
    while waiting:  # depth first without recursion, as an LSTM's graph is n deep
        node = waiting[-1]
        inputs = [each for each, _ in node.next_functions if each is not None]
        missing = [each for each in inputs if each not in longest]
        if missing:
            waiting += missing
        else:
            before = max((longest[each] for each in inputs), default=0)
            longest[node] = before + node.name().startswith(_PRODUCTS)
            waiting.pop()
    return max(longest.values())


def path_length(name: str, n: int) -> int:
    """Layers until the last of ``n`` positions depends on the first, by the support of gradients.

    The gradient of the last output is taken back layer by layer, keeping only where it is not zero,
    until it reaches the first input. One recurrent layer is enough, but within it the signal passes
    through all of its sequential operations.
    """
    if name == paper.RECURRENT:
        return sequential_operations(name, n)
    torch.manual_seed(0)
    state = torch.randn(1, n, _WIDTH, requires_grad=True)
    support = torch.zeros_like(state)
    support[:, -1] = 1
    layers = 0
    while not support[:, 0].any():
        (gradient,) = torch.autograd.grad(_layer_of_stack(name, layers)(state), state, support)
        # Only where it is not zero counts: its size would underflow after some hundred layers.
        support = (gradient != 0).to(state.dtype)
        layers += 1
    return layers


@cache
def _layer_of_stack(name: str, number: int) -> nn.Module:
    """A layer by its number from 0 on, on which only the gaps of dilated convolutions depend.

    Convolutions look back, as in the decoders of section 4: with a kernel around the position, wide
    gaps would leave the sequence at both ends.
    """
    if name not in (paper.DILATED, paper.CONTIGUOUS):
        return make_layer(name, _WIDTH)
    gap = paper.KERNEL**number if name == paper.DILATED else 1
    before = nn.ConstantPad1d((gap * (paper.KERNEL - 1), 0), 0.0)
    return Convolution(before, nn.Conv1d(_WIDTH, _WIDTH, paper.KERNEL, dilation=gap))
