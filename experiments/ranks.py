"""Which process of a run on several devices this is."""

from __future__ import annotations

from lightning.fabric.utilities.rank_zero import rank_zero_only


def is_first_rank() -> bool:
    """Whether this process is the one that writes; known before a Trainer is made."""
    return rank_zero_only.rank == 0  # pyright: ignore[reportFunctionMemberAccess]
