"""The devices and processes of a run, and which of the processes this is.

torch is imported where it is needed: a parent that only starts runs does without.
"""

from __future__ import annotations

import os
import platform
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from transformer.config import Precision
from transformer.errors import InputError

if TYPE_CHECKING:
    import torch

# In the order in which Lightning asks them.
_RANK_VARIABLES = ("RANK", "LOCAL_RANK", "SLURM_PROCID")


@dataclass(frozen=True, slots=True)
class World:
    """The processes of one run: ``local`` of them on each of ``nodes`` machines."""

    local: int
    nodes: int = 1

    @property
    def size(self) -> int:
        """All of them."""
        return self.local * self.nodes


def is_first_rank() -> bool:
    """Whether this process is the one that writes; known before a Trainer is made."""
    ranks = (os.environ[name] for name in _RANK_VARIABLES if name in os.environ)
    return int(next(ranks, "0")) == 0


def launched_world() -> World | None:
    """The processes that ``torchrun`` has started, this one among them; None without it.

    Raises:
        InputError: if it started more on one machine than on another.
    """
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
    """The processes of a run on ``devices`` of this machine; None takes those of ``torchrun``,
    else one.

    Raises:
        InputError: if there cannot be so many, or ``torchrun`` has started another number.
    """
    launched = launched_world()
    if devices is not None and devices < 1:
        raise InputError(f"devices is {devices}, but must be at least 1")
    if launched is None:
        return World(devices or 1)
    if devices not in (None, launched.local):
        raise InputError(
            f"devices is {devices}, but torchrun has started {launched.local} processes here: "
            "leave --devices out, or give --nproc-per-node the same number"
        )
    return launched


def default_device() -> torch.device:
    """A CUDA GPU where there is one, else the CPU: Apple's has no numbers of 64 bits, in which
    validation is added up, and nothing here has been tried on it.
    """
    import torch

    return torch.device("cuda" if torch.cuda.is_available() else "cpu")


def refuse_more_than_there_are(devices: int) -> None:
    """Check that each of ``devices`` processes can have a GPU of its own, where there is one.

    Raises:
        InputError: if not.
    """
    import torch

    there = torch.cuda.device_count()
    if 0 < there < devices:
        raise InputError(f"devices is {devices}, but this machine has {there} GPU(s) to give")


def device_name() -> str:
    """The GPU, or the processor with the threads that torch uses on it."""
    import torch

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


def native_precision() -> Precision:
    """What the precision ``auto`` means on this machine.

    A process of its own looks: torch takes a second to import, and keeps memory of a GPU that it
    has looked at.
    """
    command = [sys.executable, "-m", __spec__.name]
    answer = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True).stdout
    return "bf16" if answer.strip() == "bf16" else "fp32"


if __name__ == "__main__":
    from transformer.training.precision import effective_precision

    print(effective_precision("auto", default_device()))
