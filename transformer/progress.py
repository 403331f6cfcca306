"""Progress of long work on standard error."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Generator
from contextlib import contextmanager, nullcontext

from rich.console import Console
from rich.progress import BarColumn, Progress, TaskProgressColumn, TextColumn, TimeRemainingColumn

from transformer.formats import duration

_LINE_SECONDS = 30.0
_PERIOD_SECONDS = 600.0  # in which speed is measured: a step of training may take a minute


@contextmanager
def show_progress(
    what: str, total: float | None, done: int = 0
) -> Generator[Callable[..., float | None]]:
    """Yield a function to be called with how much of ``total`` is done, and show it.

    It also takes a text with further numbers, and returns the seconds left; None if unknown.

    Args:
        total: None if unknown
        done: how much an earlier start has done; the remaining time is estimated without it
    """
    console = Console(stderr=True)
    columns = TextColumn("{task.description}", markup=False), BarColumn(), TaskProgressColumn()
    columns = *columns, TimeRemainingColumn(), TextColumn("{task.fields[numbers]}", markup=False)
    bar = Progress(
        *columns,
        console=console,
        transient=True,
        get_time=lambda: time.monotonic(),
        speed_estimate_period=_PERIOD_SECONDS,
    )
    bar.add_task(what, total=total, completed=done, numbers="")
    (task,) = bar.tasks
    printed = time.monotonic()

    def update(done: float, numbers: str = "") -> float | None:
        nonlocal printed
        bar.update(task.id, completed=done, numbers=numbers)
        left = task.time_remaining
        if not console.is_terminal and time.monotonic() - printed >= _LINE_SECONDS:
            printed = time.monotonic()
            rest = "" if left is None else f", {duration(left)} left"
            print(f"{what}: {task.percentage:.0f}%{rest}{numbers}", file=sys.stderr, flush=True)
        return left

    with bar if console.is_terminal else nullcontext():
        yield update


@contextmanager
def show_activity(what: str) -> Generator[None]:
    """Show that work is in progress, without an estimate of the remaining time."""
    console = Console(stderr=True)
    if not console.is_terminal:
        print(what, file=sys.stderr, flush=True)
    with console.status(what):  # shown on terminals only
        yield
