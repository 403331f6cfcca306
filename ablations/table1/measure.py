"""Time, memory and FLOPs of layers at one length and width, in fp32."""

from __future__ import annotations

import math
import time
from collections.abc import Collection

import torch
from torch import Tensor, nn
from torch.utils.flop_counter import FlopCounterMode

from ablations.table1.layers import make_layer
from ablations.table1.measurements import Timing
from ablations.table1.paper import RECURRENT

# Samples of each layer: the least, and the most where they are quick.
_LEAST_SAMPLES, _MOST_SAMPLES = 5, 15
# A sample is the mean over as many passes as take this long, so that a clock's ticks do not matter.
_SAMPLE_SECONDS = 0.005
# From so many on, no more samples are taken than the least.
_POINT_SECONDS = 4.0


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
    length = 1 if name == RECURRENT else n
    with FlopCounterMode(display=False) as counter:
        make_layer(name, d, device)(torch.empty(1, length, d, device=device))
    return 3 * counter.get_total_flops() * (n // length)
