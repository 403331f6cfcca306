"""Independent work on several threads of a CPU.

Plain form: ``map``. With small models, operations that each use all cores wait for the slowest
core thousands of times a second, which is very slow when the machine is shared.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterable
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from contextvars import copy_context
from functools import cache
from typing import TypeVar

import torch

Item = TypeVar("Item")
Result = TypeVar("Result")


@contextmanager
def torch_threads(count: int | None) -> Generator[None]:
    """Let torch use ``count`` threads within this context; None changes nothing."""
    before = torch.get_num_threads()
    if count is not None:
        torch.set_num_threads(count)
    try:
        yield
    finally:
        torch.set_num_threads(before)


def map_on_threads(
    function: Callable[[Item], Result], items: Iterable[Item], threads: int
) -> Generator[Result]:
    """``map`` on this many threads, or on the calling one if ``threads`` is 1.

    On several threads, context variables that an item sets are lost when it ends.
    """
    if threads <= 1:
        yield from map(function, items)
        return
    all_threads = torch.get_num_threads()

    def with_share_of_threads(item: Item) -> Result:
        torch.set_num_threads(max(1, all_threads // threads))
        return copy_context().run(function, item)

    try:
        yield from _pool(threads).map(with_share_of_threads, items)
    finally:
        torch.set_num_threads(all_threads)  # part of the setting is global to the process


@cache
def _pool(threads: int) -> ThreadPoolExecutor:
    return ThreadPoolExecutor(threads, thread_name_prefix="share")
