"""A run that needs more memory than there is, told by what to change."""

from __future__ import annotations

from collections.abc import Callable, Generator
from contextlib import contextmanager

import torch

# How torch, CUDA and its libraries word it where they have no exception of its own for it.
_WORDS = ("can't allocate memory", "out of memory", "Cannot allocate memory", "ALLOC_FAILED")


class OutOfMemoryError(Exception):
    """There was not enough memory. The message is one line: where, and what to change."""


def is_out_of_memory(error: Exception) -> bool:
    """Whether an exception of Python, torch or CUDA says that memory ran out."""
    if isinstance(error, MemoryError | torch.OutOfMemoryError):
        return True
    return isinstance(error, RuntimeError) and any(words in str(error) for words in _WORDS)


@contextmanager
def explained(where: Callable[[], str], advice: str) -> Generator[None]:
    """Say in one line where memory ran out, and what to do about it.

    Raises:
        OutOfMemoryError: in place of what says so less plainly.
    """
    try:
        yield
    except (MemoryError, RuntimeError) as error:
        if not is_out_of_memory(error):
            raise
        raise OutOfMemoryError(f"out of memory {where()}: {advice}") from error
