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
    """A place for one run: the GPU that it may see, and how many CPU threads it may use."""

    device: int | None
    threads: int


def slots(workers: int | None = None) -> tuple[Slot, ...]:
    """Places for ``workers`` runs at once; without a number one per GPU, else one per core.

    One core per run is the fastest use of few cores: two processes of one thread each outrun one
    of two threads. More workers than GPUs share them in turn.

    Raises:
        InputError: for fewer than one worker.
    """
    devices, cores = gpus(), _cores()
    if workers is None:
        workers = len(devices) or min(cores, _MOST_CPU_WORKERS)
    if workers < 1:
        raise InputError(f"--workers is {workers}, but must be at least 1")
    threads = max(1, cores // workers)
    return tuple(
        Slot(devices[index % len(devices)] if devices else None, threads)
        for index in range(workers)
    )


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


def _cores() -> int:
    """How many cores this process may use, which a container can make fewer than there are."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1
