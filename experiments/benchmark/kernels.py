"""Where the time of a step goes, by kind of operation: torch's profiler, its names sorted."""

from __future__ import annotations

import os
import re
import time
from collections import defaultdict
from collections.abc import Callable, Collection
from typing import TypeVar

import torch

from experiments.benchmark.timing import wait_for
from transformer.kernels.threads import torch_threads

Item = TypeVar("Item")

# The first that is found in the name of a GPU's kernel, or of torch's operation on a CPU, counts.
_KINDS = {
    "attention": r"fmha|flash|attention|sdpa|softmax_warp",
    "compiled": r"^triton_",
    "optimizer": r"fused_?adam|multi_tensor_apply",
    "products": r"gemm|gemv|nvjet|cutlass|xmma|cublas|splitk|aten::(mm|addmm|bmm|baddbmm)$",
    "normalisation": r"layer_?norm|GammaBeta",
    "loss": r"softmax|logsumexp|scan|aten::(exp_?|log|amax|sum)$|reduce_kernel",
    "dropout": r"dropout|distribution|random|bernoulli",
    "embedding": r"embedding|index|gather|scatter|radix|sort|cub",
    "copies": r"memcpy|memset|copy|aten::(fill_|zero_|cat)$|CatArray|FillFunctor",
    "elementwise": r"elementwise|vectorized|aten::(add|mul|sub|div|threshold)",
}


def profile(
    function: Callable[[Item], object], items: Collection[Item], device: torch.device
) -> tuple[float, dict[str, float]]:
    """Call ``function`` with each item under the profiler.

    Returns:
        The share of the time in which the device works (on a CPU: in torch's operations on one
        thread), and the seconds of a call by kind of operation, the longest first.
    """
    os.environ.setdefault("KINETO_LOG_LEVEL", "99")  # or it prints when it starts and stops
    activity = torch.profiler.ProfilerActivity
    is_gpu = device.type == "cuda"
    activities = [activity.CPU, activity.CUDA] if is_gpu else [activity.CPU]
    wait_for(device)
    start = time.perf_counter()
    for item in items:
        function(item)
    wait_for(device)
    wall = time.perf_counter() - start
    # The profiler sees the operations of this thread alone.
    with (
        torch_threads(None if is_gpu else 1),
        torch.profiler.profile(activities=activities) as found,
    ):
        profiled = time.perf_counter()
        for item in items:
            function(item)
        wait_for(device)
        profiled = time.perf_counter() - profiled
    seconds: dict[str, float] = defaultdict(float)
    for event in found.key_averages():
        if event.is_user_annotation:
            continue  # a range around kernels that are listed themselves
        if is_gpu and event.device_type.name == "CUDA":
            seconds[kind_of(event.key)] += 1e-6 * event.self_device_time_total
        elif not is_gpu:
            seconds[kind_of(event.key)] += 1e-6 * event.self_cpu_time_total
    # Without the profiler a GPU works as long, and waits less for the next kernel.
    busy = sum(seconds.values()) / (wall if is_gpu else profiled)
    ordered = sorted(seconds.items(), key=lambda entry: -entry[1])
    return min(busy, 1.0), {kind: total / len(items) for kind, total in ordered}


def kind_of(kernel: str) -> str:
    """The kind of a kernel, by its name."""
    kinds = (kind for kind, pattern in _KINDS.items() if re.search(pattern, kernel, re.IGNORECASE))
    return next(kinds, "other")
