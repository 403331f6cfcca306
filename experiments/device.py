"""What everything here runs on."""

from __future__ import annotations

import platform
from pathlib import Path

import torch

from transformer.errors import InputError
from transformer.training.precision import effective_precision


def default_device() -> torch.device:
    """A CUDA GPU where there is one, else the CPU: Apple's has no numbers of 64 bits, in which
    validation is added up, and nothing here has been tried on it.
    """
    return torch.device("cuda" if torch.cuda.is_available() else "cpu")


def refuse_more_than_there_are(devices: int) -> None:
    """Check that each of ``devices`` processes can have a GPU of its own, where there is one.

    Raises:
        InputError: if not.
    """
    there = torch.cuda.device_count()
    if 0 < there < devices:
        raise InputError(f"devices is {devices}, but this machine has {there} GPU(s) to give")


def device_name() -> str:
    """The GPU, or the processor with the threads that torch uses on it."""
    if torch.cuda.is_available():
        return torch.cuda.get_device_name()
    threads = torch.get_num_threads()
    return f"{_processor()}, {threads} thread{'s' if threads > 1 else ''}"


def _processor() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines()
        return next(x.partition(": ")[2] for x in lines if x.startswith("model name"))
    except (OSError, StopIteration):
        return platform.processor() or platform.machine()


if __name__ == "__main__":
    print(effective_precision("auto", default_device()))
