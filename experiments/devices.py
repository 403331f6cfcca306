"""The devices of a run; torch is imported inside functions."""

from __future__ import annotations

import functools
import os
import platform
import re
import resource
import subprocess
import sys
from collections.abc import Callable, Generator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from transformer.config import Precision
from transformer.errors import InputError

if TYPE_CHECKING:
    import torch

# Names as CUDA gives them, without the brand; TFLOP/s of fp32 outside tensor cores, and of dense
# bf16 accumulated in fp32, without sparsity. K80 to P100 are from the paper's footnote 5, the
# others from NVIDIA's data sheets. Slices of a GPU (MIG) and laptop GPUs are other devices.
_PEAK_TFLOPS: dict[str, tuple[float, float | None]] = {
    r"K80": (2.8, None),
    r"K40[cmst]?": (3.7, None),
    r"M40( 24GB)?": (6.0, None),
    r"P100(-\w+-\d+GB)?": (9.5, None),
    r"V100(-SXM2-\d+GB)?": (15.7, None),
    r"V100-PCIE-\d+GB": (14.0, None),
    r"T4": (8.1, None),
    r"A100(-\w+-\d+GB)?|A100 80GB PCIe": (19.5, 312.0),
    r"A10": (31.2, 125.0),
    r"A40": (37.4, 149.7),
    r"L4": (30.3, 121.0),
    r"L40S": (91.6, 362.0),
    r"H100( 80GB HBM3)?|H200": (67.0, 989.0),
    r"H100 PCIe": (51.0, 756.0),
    r"(GeForce )?RTX 3090": (35.6, 71.0),
    r"(GeForce )?RTX 4090": (82.6, 165.2),
}
# Messages of torch, CUDA and its libraries that come without an exception class of their own.
_OUT_OF_MEMORY = ("out of memory", "an't allocate memory", "annot allocate memory", "ALLOC_FAILED")


MOST = 100_000  # the largest count of anything; a larger one is a typing error
_MOST_PER_UNIT = 64  # processes, or runs, on one core or GPU


def check_count(option: str, count: int, units: int) -> None:
    """Check that ``units`` cores or GPUs can take as many processes as the option asks for."""
    most = min(MOST, _MOST_PER_UNIT * units)
    if count > most:
        raise InputError(f"{option} is {count}, but may be at most {most:,} on this machine")


def check_parts(accumulate: int, devices: int, tokens: int) -> None:
    """Check that a batch of so many tokens can be divided by ``accumulate`` on each device."""
    most = max(1, tokens // devices)
    if not 1 <= accumulate <= most:
        raise InputError(
            f"accumulate is {accumulate}, but must be at least 1 and at most {most:,}, so that "
            "each part of a batch has a token"
        )


@dataclass(frozen=True, slots=True)
class World:
    """The processes of one run: ``local`` on each of ``nodes`` machines."""

    local: int
    nodes: int = 1

    @property
    def size(self) -> int:
        return self.local * self.nodes


def launched_world() -> World | None:
    """The processes that ``torchrun`` has started, this one included; None without torchrun."""
    if "TORCHELASTIC_RUN_ID" not in os.environ:
        return None
    local, size = (int(os.environ[name]) for name in ("LOCAL_WORLD_SIZE", "WORLD_SIZE"))
    if size % local != 0:
        raise InputError(
            f"torchrun started {local} processes here and {size} in all: each machine must have "
            "as many (--nproc-per-node)"
        )
    return World(local, size // local)


def find_world(devices: int | None) -> World:
    """The processes of a run on ``devices`` of this machine; None means ``torchrun``'s, or one."""
    import torch

    launched = launched_world()
    if devices is not None and devices < 1:
        raise InputError(f"devices is {devices}, but must be at least 1")
    if launched is not None and devices not in (None, launched.local):
        raise InputError(
            f"devices is {devices}, but torchrun has started {launched.local} processes here: "
            "leave --devices out, or give --nproc-per-node the same number"
        )
    if launched is None and os.environ.get("SLURM_STEP_NUM_TASKS", "1") != "1":
        raise InputError("srun has started several tasks: use srun --ntasks=1, or torchrun")
    world = launched or World(devices or 1)
    gpus = torch.cuda.device_count()
    if 0 < gpus < world.local:  # without GPUs, several processes share the CPU
        raise InputError(f"devices is {world.local}, but this machine has {gpus} GPU(s) to give")
    check_count("devices", world.local, os.cpu_count() or 1)
    return world


def default_device() -> torch.device:
    """A CUDA GPU if there is one, otherwise the CPU: Apple's GPU has no float64."""
    import torch

    return torch.device("cuda" if torch.cuda.is_available() else "cpu")


def device_name(device: torch.device | None = None) -> str:
    """The name of the GPU, or of the processor with the number of threads that torch uses."""
    import torch

    device = device or default_device()
    if device.type == "cuda":
        return torch.cuda.get_device_name(device)
    threads = torch.get_num_threads()
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines()
        processor = next(x.partition(": ")[2] for x in lines if x.startswith("model name"))
    except (OSError, StopIteration):
        processor = platform.processor() or platform.machine()
    return f"{processor}, {threads} thread{'s' if threads > 1 else ''}"


def peak_memory(device: torch.device) -> int:
    """The most bytes that this process has held so far: reserved on a GPU, else resident."""
    import torch

    if device.type == "cuda":
        return torch.cuda.max_memory_reserved(device)
    used = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return used if sys.platform == "darwin" else used * 1024


def nominal_peak(device: str, precision: Precision) -> float | None:
    """Peak operations per second of a device by its name; None for unknown ones and for CPUs.

    Args:
        device: its name as CUDA gives it, or a short one such as ``H100``, in any case
    """
    name = re.sub(r"^(NVIDIA )?(Tesla )?", "", device)
    for pattern, (fp32, bf16) in _PEAK_TFLOPS.items():
        if re.fullmatch(pattern, name, re.IGNORECASE):
            tflops = bf16 if precision == "bf16" else fp32
            return tflops and 1e12 * tflops
    return None


class OutOfMemoryError(InputError):
    """Memory ran out."""


@contextmanager
def explain_out_of_memory(where: Callable[[], str], advice: str) -> Generator[None]:
    """Turn the out-of-memory errors of Python, torch and CUDA into an OutOfMemoryError that says
    where it was and gives advice.
    """
    try:
        yield
    except (MemoryError, RuntimeError) as error:  # torch.OutOfMemoryError is a RuntimeError
        if isinstance(error, MemoryError) or any(words in str(error) for words in _OUT_OF_MEMORY):
            raise OutOfMemoryError(f"out of memory {where()}: {advice}") from error
        raise


@functools.cache
def faster_precision(d_model: int) -> Precision:
    """The precision that ``auto`` chooses on this machine for a model of this width.

    A separate process looks at the GPU, because it keeps memory there until it ends.
    """
    command = [sys.executable, "-m", __spec__.name, str(d_model)]
    answer = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True).stdout
    return "bf16" if answer.strip() == "bf16" else "fp32"


if __name__ == "__main__":
    from transformer.training.precision import is_faster_in_bf16

    print("bf16" if is_faster_in_bf16(int(sys.argv[1]), default_device()) else "fp32")
