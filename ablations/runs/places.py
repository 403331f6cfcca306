"""Places for runs on this machine's GPUs or cores."""

from __future__ import annotations

import itertools
import os
import subprocess

from ablations.runs.executor import Place
from transformer.errors import InputError


def find_places(
    workers: int | None = None,
    *,
    devices_per_trial: int = 1,
    trials_per_device: int = 1,
    threads: int = 1,
) -> tuple[Place, ...]:
    """The places of this machine: one for each group of GPUs, else for each group of cores.

    On few cores one core per run is fastest: two processes of one thread each outrun one process
    of two threads. Memory is no limit: at the scales for CPUs a run needs less than 1 GiB.

    Args:
        workers: the number of places; if there are more than groups of GPUs, they share them
        devices_per_trial: GPUs of one run, or processes on the CPU if there is none
        trials_per_device: runs that share a GPU, or a core
        threads: CPU threads of each process
    """
    options = {
        "--workers": workers,
        "--devices-per-trial": devices_per_trial,
        "--trials-per-device": trials_per_device,
    }
    for name, value in options.items():
        if value is not None and value < 1:
            raise InputError(f"{name} is {value}, but must be at least 1")
    devices, cores = gpus(), count_cores()
    if devices_per_trial > len(devices or range(cores)):
        there = f"GPUs here: {len(devices)}" if devices else f"cores here: {cores}, and no GPU"
        raise InputError(f"--devices-per-trial is {devices_per_trial}, but {there}")
    if not devices:
        count = workers or max(1, cores // (devices_per_trial * threads)) * trials_per_device
        return tuple(Place(number, (), devices_per_trial) for number in range(count))
    groups = [
        tuple(devices[first : first + devices_per_trial])
        for first in range(0, len(devices) - devices_per_trial + 1, devices_per_trial)
    ]
    count = workers or len(groups) * trials_per_device
    return tuple(
        Place(number, groups[number % len(groups)], devices_per_trial) for number in range(count)
    )


def gpus() -> list[int | str]:
    """The GPUs that may be used: those in CUDA_VISIBLE_DEVICES, by number or UUID, else all."""
    visible = os.environ.get("CUDA_VISIBLE_DEVICES")
    if visible is not None:
        names = (part.strip() for part in visible.split(","))
        # CUDA ignores everything after a name that it does not know, such as -1.
        known = itertools.takewhile(
            lambda name: name.isdecimal() or name.startswith(("GPU-", "MIG-")), names
        )
        return [int(name) if name.isdecimal() else name for name in known]
    try:
        listing = subprocess.run(
            ["nvidia-smi", "-L"], capture_output=True, text=True, timeout=20, check=True
        ).stdout
    except (subprocess.SubprocessError, OSError):
        return []
    return list(range(sum(line.startswith("GPU ") for line in listing.splitlines())))


def count_cores() -> int:
    """How many cores this process may use, which a container may restrict."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1
