"""``map`` on processes, for text, or a thread, for batches."""

from __future__ import annotations

import os
import signal
import threading
import time
from collections import deque
from collections.abc import Callable, Generator, Iterable
from concurrent.futures import Future, ThreadPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from contextlib import contextmanager
from functools import partial
from itertools import chain, islice
from typing import Any, TypeVar

import loky  # unlike the standard library's, its processes do not re-import the user's script

Item = TypeVar("Item")
Result = TypeVar("Result")

# Items queued per process: enough that none is idle, few enough to hold in memory.
_QUEUED = 2
# Batches; more than one, because batches and steps vary in the time they take.
_PREFETCHED = 4
_WATCH_SECONDS = 0.5
# Starting a process takes as long as some items.
_MIN_ITEMS = 4
_MAX_WORKERS = 16


def default_workers() -> int:
    """One per core, up to what the one process that reads and writes can keep busy."""
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()
    return min(cores or 1, _MAX_WORKERS)


def map_in_order(
    function: Callable[[Item], Result], items: Iterable[Item], workers: int
) -> Generator[Result]:
    """``map`` on as many processes as ``items`` are worth, or in this process if it is one."""
    rest = iter(items)
    first = deque(islice(rest, _MIN_ITEMS * workers))
    workers = min(workers, len(first) // _MIN_ITEMS)
    items = chain((first.popleft() for _ in range(len(first))), rest)
    if workers <= 1:
        yield from map(function, items)
        return
    with _pool(workers) as submit:
        yield from _results(partial(submit, function), items, _QUEUED * workers)


def prefetch(
    function: Callable[[Item], Result], items: Iterable[Item], ahead: int = _PREFETCHED
) -> Generator[Result]:
    """``map`` on another thread, up to ``ahead`` items ahead of the caller.

    What the function raises is raised when its item is due.
    """
    with ThreadPoolExecutor(1, thread_name_prefix="prefetch") as thread:
        yield from _results(partial(thread.submit, function), items, ahead)


def _results(
    submit: Callable[[Item], Future[Result]], items: Iterable[Item], ahead: int
) -> Generator[Result]:
    waiting: deque[Future[Result]] = deque()
    try:
        for item in items:
            waiting.append(submit(item))
            if len(waiting) > ahead:
                yield waiting.popleft().result()
        while waiting:
            yield waiting.popleft().result()
    finally:
        for future in waiting:
            future.cancel()


def in_subprocess(function: Callable[[Item], Result], item: Item) -> Result:
    """``function(item)`` in a process that Ctrl-C stops and whose memory is freed afterwards."""
    with _pool(1) as submit:
        return submit(function, item).result()


@contextmanager
def _pool(workers: int) -> Generator[Callable[..., Future[Any]]]:
    pool = loky.ProcessPoolExecutor(workers, initializer=_begin, initargs=(os.getpid(),))
    try:
        yield pool.submit
    except BrokenProcessPool as error:
        raise ChildProcessError(
            "a process that prepares text was killed, perhaps for lack of memory: "
            "start again to continue with the stage where it was"
        ) from error
    finally:
        pool.shutdown(kill_workers=True)


def _begin(parent: int) -> None:
    """Leave Ctrl-C to the parent process, and exit when the parent is gone."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)

    def watch() -> None:
        while os.getppid() == parent:
            time.sleep(_WATCH_SECONDS)
        os._exit(1)

    threading.Thread(target=watch, daemon=True).start()
