"""Progress of long work on standard error."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Generator
from contextlib import contextmanager, nullcontext
from contextvars import ContextVar

from rich.console import Console
from rich.progress import (
    BarColumn,
    DownloadColumn,
    Progress,
    Task,
    TaskProgressColumn,
    TextColumn,
    TimeRemainingColumn,
    TransferSpeedColumn,
)

from transformer.formats import duration, size

_LINE_SECONDS = 30.0
# Whether a display is open, which says how much is left of everything that is done meanwhile.
_is_open: ContextVar[bool] = ContextVar("is_open", default=False)
_NAME = TextColumn("{task.description}", markup=False)


@contextmanager
def show_progress(
    what: str, total: float | None, done: int = 0, *, in_bytes: bool = False
) -> Generator[Callable[[float], None]]:
    """Yield a function to be called with how much of ``total`` is done, and show it.

    While one is shown, others, such as those of the files it counts, show nothing.

    Args:
        what: the work, as it is displayed
        total: None if unknown
        done: by an earlier start; the remaining time is estimated without it
        in_bytes: show bytes, not a percentage
    """
    if _is_open.get():
        yield lambda done: None
        return
    console = Console(stderr=True)
    amount = (DownloadColumn(), TransferSpeedColumn()) if in_bytes else (TaskProgressColumn(),)
    columns = (_NAME, BarColumn(), *amount, TimeRemainingColumn())
    bar = Progress(*columns, console=console, transient=True, get_time=lambda: time.monotonic())
    bar.add_task(what, total=total, completed=done)
    (task,) = bar.tasks
    printed = time.monotonic()

    def update(done: float) -> None:
        nonlocal printed
        bar.update(task.id, completed=done)
        if not console.is_terminal and time.monotonic() - printed >= _LINE_SECONDS:
            printed = time.monotonic()
            print(_line(task, in_bytes), file=sys.stderr, flush=True)

    token = _is_open.set(True)
    try:
        with bar if console.is_terminal else nullcontext():
            yield update
    finally:
        _is_open.reset(token)


def _line(task: Task, in_bytes: bool) -> str:
    if in_bytes:
        amount = size(task.completed)
        amount += "" if task.total is None else f" of {size(task.total)}"
    else:
        amount = f"{task.percentage:.0f}%"
    left = task.time_remaining
    return f"{task.description}: {amount}{'' if left is None else f', {duration(left)} left'}"


@contextmanager
def show_activity(what: str) -> Generator[None]:
    """Show that work is in progress whose remaining time is unknown."""
    console = Console(stderr=True)
    if not console.is_terminal:
        print(what, file=sys.stderr, flush=True)
    with console.status(what):  # shown on terminals only
        yield
