"""Threads, for the tests that are about them."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest
import torch


@pytest.fixture
def set_threads() -> Iterator[Callable[[int], None]]:
    """Set torch's number of threads for one test."""
    yield torch.set_num_threads
    torch.set_num_threads(1)


@pytest.fixture
def two_threads(set_threads: Callable[[int], None]) -> None:
    """Two of them."""
    set_threads(2)
