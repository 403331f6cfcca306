"""Measure layers: time, memory, FLOPs and sequential operations."""

from __future__ import annotations

import time
from pathlib import Path
from statistics import fmean

import torch
from torch import Tensor, nn
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.utils.flop_counter import FlopCounterMode

from ablations.files import LAYERS_FILE, check_free
from ablations.folder import LayersFolder
from ablations.report.layout import print_page
from ablations.table1.layers import make_layer
from ablations.table1.report import write_layers_report
from ablations.tables import table1 as paper
from ablations.tables.measurements import Measurements, Point, load_measurements
from ablations.tables.table1 import NAMES, PATHS, STEP_LENGTHS
from experiments.devices import default_device, device_name
from experiments.records.ownership import lock_directory
from experiments.records.provenance import commit
from transformer.errors import InputError
from transformer.files import make_directory
from transformer.kernels.threads import torch_threads
from transformer.progress import show_progress

_SAMPLES = 5
_SAMPLE_SECONDS = 0.005  # at least, so that clock ticks do not matter
_THREADS = 1  # the gain from more depends on how torch divides a layer, not on Table 1
_WIDTH = 64  # of layers whose sequential operations and paths are counted
# The operations of autograd's graph that multiply matrices.
_MATMULS = ("AddmmBackward", "MmBackward", "BmmBackward", "ConvolutionBackward")


def run_layers(directory: Path | None, device_type: str | None, *, quick: bool = False) -> int:
    """Measure a directory's missing sizes, then write and print the report; return the exit code.

    Args:
        device_type: cpu or cuda; None for a GPU if there is one
        quick: measure only the small sizes; a later call without it measures the others
    """
    device = torch.device(device_type) if device_type else default_device()
    if device.type == "cuda" and not torch.cuda.is_available():
        raise InputError("--device is cuda, but torch finds no GPU here; use --device cpu")
    root = directory or Path("runs") / f"table1-{device.type}"
    make_directory(root)
    with lock_directory(root), torch_threads(_THREADS):
        check_free(root, LAYERS_FILE)
        here = Measurements(kind=device.type, device=device_name(device), torch=torch.__version__)
        found = load_measurements(root) if (root / LAYERS_FILE).exists() else here
        if (found.device, found.torch) != (here.device, here.torch):
            raise InputError(
                f"{root} was measured on {found.device} with torch {found.torch}, but this is "
                f"{here.device} with torch {here.torch}: choose another --directory"
            )
        print(f"Table 1 in {root}: {found.device}, fp32", flush=True)
        try:
            _measure(found, root, device, found.lacking(quick))
        except KeyboardInterrupt:
            print("stopped; the same command continues from here")
            raise
        print_page(write_layers_report(LayersFolder(root)), root)
    return 0


def _measure(
    found: Measurements, root: Path, device: torch.device, sizes: list[tuple[int, int]]
) -> None:
    """Measure layers of these widths and lengths, saving each size when it is done."""
    if not found.sequential:
        for name in NAMES:
            found.sequential[name] = [sequential_operations(name, n) for n in STEP_LENGTHS]
        for name in PATHS:
            found.paths[name] = [path_length(name, n) for n in STEP_LENGTHS]
    if device.type == "cuda":
        # By default matmuls do not use TF32, but convolutions and LSTMs do.
        torch.backends.cudnn.allow_tf32 = False
    done = 0  # the time of a size is roughly proportional to n·d
    with show_progress("timing layers", sum(d * n for d, n in sizes)) as show:
        for d, n in sizes:
            found.points.append(measure_layers(n, d, device))
            found.save(root)
            done += d * n
            show(done)


def measure_layers(n: int, d: int, device: torch.device) -> Point:
    """Time each layer forward and backward on one sequence, and measure its memory."""
    torch.manual_seed(0)
    x = torch.randn(1, n, d, device=device, requires_grad=True)
    flops = {name: count_flops(name, n, d) for name in NAMES}
    point = Point(n=n, d=d, commit=commit(), flops=flops, forward={}, backward={}, memory={})
    layers: dict[str, nn.Module] = {}
    for name in NAMES:
        if device.type == "cuda" or flops[name] <= paper.most_flops(name):
            layer = layers[name] = make_layer(name, d).to(device)
            _time_passes(layer, x)  # the first passes are slow
            point.memory[name] = memory(layer, x)
            point.forward[name], point.backward[name] = [], []
    for _ in range(_SAMPLES):
        # All layers in turn, so that a slow spell of the machine affects all alike.
        for name, layer in layers.items():
            forward, backward = _time_passes(layer, x)
            point.forward[name].append(forward)
            point.backward[name].append(backward)
    return point


def _time_passes(layer: nn.Module, x: Tensor) -> tuple[float, float]:
    """Mean seconds of a forward pass, and of a backward pass to the input and the weights."""
    forward: list[float] = []
    backward: list[float] = []
    while sum(forward) + sum(backward) < _SAMPLE_SECONDS:
        start = _clock(x.device)
        output = layer(x)
        middle = _clock(x.device)
        torch.autograd.grad(output, [x, *layer.parameters()], x.detach())
        forward.append(middle - start)
        backward.append(_clock(x.device) - middle)
        del output  # or the next pass would find it in memory
    return fmean(forward), fmean(backward)


def _clock(device: torch.device) -> float:
    """The time in seconds; on a CPU, the CPU time of this process alone."""
    if device.type == "cpu":
        return time.process_time()
    torch.cuda.synchronize(device)
    return time.perf_counter()


def memory(layer: nn.Module, x: Tensor) -> int:
    """Bytes that training needs in addition to weights and input.

    On a GPU, the peak allocated during a pass minus what was allocated before. On a CPU, where
    torch records no peaks, what the forward pass saves for the backward pass, including the input.
    """
    if x.device.type == "cuda":
        before = torch.cuda.memory_allocated(x.device)
        torch.cuda.reset_peak_memory_stats(x.device)
        _time_passes(layer, x)
        return torch.cuda.max_memory_allocated(x.device) - before
    saved: dict[int, int] = {}

    def pack(tensor: Tensor) -> Tensor:
        storage = tensor.untyped_storage()
        saved[storage.data_ptr()] = storage.nbytes()
        return tensor

    with torch.autograd.graph.saved_tensors_hooks(pack, lambda tensor: tensor):
        output = layer(x)  # kept until all is counted, so that no memory is reused
    del output
    for weight in layer.parameters():
        saved.pop(weight.untyped_storage().data_ptr(), None)
    return sum(saved.values())


def count_flops(name: str, n: int, d: int) -> int:
    """FLOPs of the matmuls of a forward and a backward pass; a multiply-add counts as two."""
    # torch would unroll an LSTM for minutes.
    length = 1 if name == paper.RECURRENT else n
    # The meta device computes nothing, and has no fused attention that would hide matmuls.
    layer = make_layer(name, d).to("meta")
    with FlopCounterMode(display=False) as counter:
        layer(torch.empty(1, length, d, device="meta"))
    # For each matmul forward there are two of the same size backward.
    return 3 * counter.get_total_flops() * (n // length)


def sequential_operations(name: str, n: int) -> int:
    """The longest chain of matmuls in autograd's graph of a layer."""
    # In double precision on a CPU, torch does not fuse LSTMs.
    x = torch.randn(1, n, _WIDTH, dtype=torch.float64, requires_grad=True)
    with sdpa_kernel(SDPBackend.MATH):
        end = make_layer(name, _WIDTH).double()(x).grad_fn
    longest: dict[torch.autograd.graph.Node, int] = {}
    waiting = [end]
    while waiting:  # depth first, without recursion, as an LSTM's graph is n deep
        node = waiting[-1]
        inputs = [each for each, _ in node.next_functions if each is not None]
        missing = [each for each in inputs if each not in longest]
        if missing:
            waiting += missing
        else:
            longest[node] = max((longest[each] for each in inputs), default=0)
            if node.name().startswith(_MATMULS):
                longest[node] += 1
            waiting.pop()
    return max(longest.values())


def path_length(name: str, n: int) -> int:
    """The number of layers until the last of ``n`` positions depends on the first, which is so when
    its gradient there is not zero.

    One recurrent layer is enough, but within it the signal passes through all of its steps.
    """
    if name == paper.RECURRENT:
        return sequential_operations(name, n)
    torch.manual_seed(0)
    state = torch.randn(1, n, _WIDTH, requires_grad=True)
    support = torch.zeros_like(state)
    support[:, -1] = 1
    layers = 0
    while not support[:, 0].any():
        output = make_layer(name, _WIDTH, gap=paper.KERNEL**layers)(state)
        (gradient,) = torch.autograd.grad(output, state, support)
        # Keep only where it is not zero: its size would underflow after some hundred layers.
        support = (gradient != 0).to(state.dtype)
        layers += 1
    return layers
