"""List the time of training steps by kernel."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Sequence

import torch

from bench.common import Item, Numbers, Size, config_of, run, workload
from bench.workload import make_step_of, wait_for
from transformer.kernels.threads import torch_threads
from transformer.training.step_kinds import wanted_kind

_LISTED = 12


def profile(
    step: Callable[[Item], object], batches: Sequence[Item], device: torch.device
) -> Numbers:
    """The longest operations, in milliseconds per step; ``busy`` is the share of all in a step.

    On a CPU the operations are those of one thread, the only one that the profiler sees.
    """
    os.environ.setdefault("KINETO_LOG_LEVEL", "99")  # or it prints when it starts and stops
    is_gpu = device.type == "cuda"
    activity = torch.profiler.ProfilerActivity

    def train() -> float:
        start = time.perf_counter()
        for batch in batches:
            step(batch)
        wait_for(device)
        return time.perf_counter() - start

    with torch_threads(None if is_gpu else 1):
        train()
        seconds = train()
        activities = [activity.CPU, activity.CUDA] if is_gpu else [activity.CPU]
        # There is one cycle alone; without acc_events, torch 2.11 warns that others are lost.
        with torch.profiler.profile(activities=activities, acc_events=True) as profiler:
            train()
    spent = {
        event.key: 1e-6 * (event.self_device_time_total if is_gpu else event.self_cpu_time_total)
        for event in profiler.key_averages()
        # Not the ranges around kernels that are listed themselves.
        if not event.is_user_annotation and (event.device_type.name == "CUDA") == is_gpu
    }
    longest = sorted(spent, key=lambda name: -spent[name])[:_LISTED]
    return {
        "ms_per_step": 1e3 * seconds / len(batches),
        # Without the profiler a GPU works as long, and waits less for the next kernel.
        "busy": sum(spent.values()) / seconds,
        "ms_by_operation": {name: 1e3 * spent[name] / len(batches) for name in longest},
    }


def profile_training(size: Size, device: torch.device, turns: int) -> Numbers:
    """The longest operations of training steps on this device, in milliseconds per step."""
    load = workload(device)
    config = config_of(size, load)
    step = make_step_of(config, wanted_kind(config, device, is_whole=True), device)
    return profile(step, load.batches(turns, device), device)


if __name__ == "__main__":
    run(profile_training, turns=3)
