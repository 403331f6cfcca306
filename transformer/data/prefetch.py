"""Batches made ahead of the training that uses them."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Generator, Iterable
from concurrent.futures import Future, ThreadPoolExecutor
from typing import TypeVar

Item = TypeVar("Item")
Outcome = TypeVar("Outcome")

# Some more than one, as batches and steps do not all take the same time.
_AHEAD = 4


def made_ahead(
    function: Callable[[Item], Outcome], items: Iterable[Item], ahead: int = _AHEAD
) -> Generator[Outcome]:
    """``map`` on a thread of its own, some items ahead of the caller, which so never waits.

    What the function raises is raised where its item is due.
    """
    with ThreadPoolExecutor(1, thread_name_prefix="prefetch") as thread:
        waiting: deque[Future[Outcome]] = deque()
        try:
            for item in items:
                waiting.append(thread.submit(function, item))
                if len(waiting) > ahead:
                    yield waiting.popleft().result()
            while waiting:
                yield waiting.popleft().result()
        finally:
            for future in waiting:
                future.cancel()
