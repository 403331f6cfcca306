"""What this machine can run at once, found without torch."""

from __future__ import annotations

import os
import shutil
import subprocess
from dataclasses import dataclass

from transformer.errors import InputError

_MOST_CPU_WORKERS = 4


@dataclass(frozen=True, slots=True)
class Slot:
    """A place for one run: the GPUs that it may see, none on the CPU; its processes; and how many
    CPU threads each of them may use.
    """

    devices: tuple[int, ...] = ()
    ranks: int = 1
    threads: int = 1


def slots(
    workers: int | None = None, *, devices_per_trial: int = 1, trials_per_device: int = 1
) -> tuple[Slot, ...]:
    """Places for runs at once: one for each group of GPUs, else one per core.

    One core per run is the fastest use of few cores: two processes of one thread each outrun one
    of two threads.

    Args:
        workers: so many places at most; more than there are groups of GPUs share them in turn
        devices_per_trial: GPUs of one run, or processes on the CPU where there is none
        trials_per_device: runs that share a GPU, or a core

    Raises:
        InputError: for less than one of anything, or more GPUs a run than there are.
    """
    for name, value in (
        ("--workers", workers),
        ("--devices-per-trial", devices_per_trial),
        ("--trials-per-device", trials_per_device),
    ):
        if value is not None and value < 1:
            raise InputError(f"{name} is {value}, but must be at least 1")
    devices, cores = gpus(), count_cores()
    if not devices:
        return _cpu_slots(workers, cores, devices_per_trial, trials_per_device)
    if devices_per_trial > len(devices):
        raise InputError(
            f"--devices-per-trial is {devices_per_trial}, but there "
            f"{'is 1 GPU' if len(devices) == 1 else f'are {len(devices)} GPUs'} here"
        )
    whole = len(devices) - len(devices) % devices_per_trial
    groups = [
        tuple(devices[first : first + devices_per_trial])
        for first in range(0, whole, devices_per_trial)
    ]
    count = workers or len(groups) * trials_per_device
    threads = max(1, cores // (count * devices_per_trial))
    return tuple(
        Slot(groups[index % len(groups)], devices_per_trial, threads) for index in range(count)
    )


def _cpu_slots(
    workers: int | None, cores: int, ranks: int, trials_per_core: int
) -> tuple[Slot, ...]:
    if ranks > cores:
        raise InputError(
            f"--devices-per-trial is {ranks}, but there {'is' if cores == 1 else 'are'} only "
            f"{cores} cores here, and no GPU"
        )
    count = workers or min(cores // ranks, _MOST_CPU_WORKERS) * trials_per_core
    return (Slot((), ranks, max(1, cores // (count * ranks))),) * count


def gpus() -> list[int]:
    """The numbers of the GPUs that may be used: those of CUDA_VISIBLE_DEVICES, else all."""
    visible = os.environ.get("CUDA_VISIBLE_DEVICES")
    if visible is not None:
        numbers = [part.strip() for part in visible.split(",")]
        return [int(number) for number in numbers if number.isdecimal()]
    program = shutil.which("nvidia-smi")
    if program is None:
        return []
    try:
        listing = subprocess.run(
            [program, "-L"], capture_output=True, text=True, timeout=20, check=True
        ).stdout
    except (subprocess.SubprocessError, OSError):
        return []
    return list(range(sum(line.startswith("GPU ") for line in listing.splitlines())))


def count_cores() -> int:
    """How many cores this process may use, which a container can make fewer than there are."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1
