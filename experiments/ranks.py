"""The processes of a run on several devices, and which of them this is."""

from __future__ import annotations

import os
from dataclasses import dataclass

from transformer.errors import InputError

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
