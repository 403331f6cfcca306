"""Work on several processes, its results in the order of the items."""

from __future__ import annotations

import os
import signal
import threading
import time
from collections import deque
from collections.abc import Callable, Generator, Iterable
from concurrent.futures import Future
from concurrent.futures.process import BrokenProcessPool
from contextlib import contextmanager
from typing import Any, TypeVar

Item = TypeVar("Item")
Outcome = TypeVar("Outcome")

# Items that wait for each process: enough that none is idle, few enough to hold in memory.
_WAITING = 2
_WATCH_SECONDS = 0.5
# To start a process takes as long as to encode some chunks.
_FEWEST_CHUNKS = 4
_MOST_WORKERS = 16


def available_cores() -> int:
    """The cores that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def default_workers() -> int:
    """A core each, as far as the one process that reads and writes can keep them busy."""
    return min(available_cores(), _MOST_WORKERS)


def useful_workers(workers: int, chunks: int) -> int:
    """No more than are worth their start."""
    return max(1, min(workers, chunks // _FEWEST_CHUNKS))


def map_in_order(
    function: Callable[[Item], Outcome], items: Iterable[Item], workers: int
) -> Generator[Outcome]:
    """``map`` on so many processes, with few items under way at a time; here if it is to be one.

    Raises:
        ChildProcessError: if a process was killed.
    """
    if workers <= 1:
        yield from map(function, items)
        return
    with _pool(workers) as submit:
        waiting: deque[Future[Outcome]] = deque()
        for item in items:
            waiting.append(submit(function, item))
            if len(waiting) > _WAITING * workers:
                yield waiting.popleft().result()
        while waiting:
            yield waiting.popleft().result()


def in_own_process(function: Callable[[Item], Outcome], item: Item) -> Outcome:
    """``function(item)`` where it can be stopped, and whose memory is free again after it.

    Raises:
        ChildProcessError: if the process was killed.
    """
    with _pool(1) as submit:
        return submit(function, item).result()


@contextmanager
def _pool(workers: int) -> Generator[Callable[..., Future[Any]]]:
    import loky  # its processes do not import the user's script anew, unlike the standard library's

    pool = loky.ProcessPoolExecutor(workers, initializer=_begin, initargs=(os.getpid(),))
    try:
        yield pool.submit
    except BrokenProcessPool as error:
        raise ChildProcessError(
            "a process that prepares text was killed, perhaps for want of memory: "
            "start again, and it goes on where it was"
        ) from error
    finally:
        pool.shutdown(kill_workers=True)


def _begin(parent: int) -> None:
    """In each process: a Ctrl-C is the parent's to handle, and without a parent it ends."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)

    def watch() -> None:
        while os.getppid() == parent:
            time.sleep(_WATCH_SECONDS)
        os._exit(1)

    threading.Thread(target=watch, daemon=True).start()
