"""Work side by side on threads, each of which has its share of torch's own threads.

One operation after the other on all cores makes each wait for the slowest some thousand times a
second, which is costly on small models and ruinous on a machine that does something else besides.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterable
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from functools import cache
from typing import TypeVar

import torch

Item = TypeVar("Item")
Outcome = TypeVar("Outcome")


@contextmanager
def torch_threads(count: int | None) -> Generator[None]:
    """Let torch use ``count`` threads for a while; None leaves its number as it is."""
    before = torch.get_num_threads()
    if count is not None:
        torch.set_num_threads(count)
    try:
        yield
    finally:
        torch.set_num_threads(before)


def map_on_threads(
    function: Callable[[Item], Outcome], items: Iterable[Item], threads: int
) -> Generator[Outcome]:
    """``map``, on so many threads; on the calling one if it is to be one alone."""
    if threads <= 1:
        yield from map(function, items)
        return
    all_threads = torch.get_num_threads()

    def on_its_share(item: Item) -> Outcome:
        torch.set_num_threads(max(1, all_threads // threads))
        return function(item)

    try:
        yield from _pool(threads).map(on_its_share, items)
    finally:
        torch.set_num_threads(all_threads)  # a part of the setting belongs to the whole process


@cache
def _pool(threads: int) -> ThreadPoolExecutor:
    return ThreadPoolExecutor(threads, thread_name_prefix="share")
