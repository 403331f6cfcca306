"""How far long work has come: a bar on a terminal, else a line now and then."""

from __future__ import annotations

import time
from collections.abc import Callable, Generator
from contextlib import contextmanager

from rich.console import Console
from rich.progress import (
    BarColumn,
    Progress,
    SpinnerColumn,
    TaskProgressColumn,
    TextColumn,
    TimeElapsedColumn,
    TimeRemainingColumn,
)

_LINE_SECONDS = 30.0


def duration(seconds: float) -> str:
    """Hours, minutes and seconds as ``1:02:03`` or ``2:03``."""
    minutes, rest = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02}:{rest:02}" if hours else f"{minutes}:{rest:02}"


@contextmanager
def show_progress(what: str, total: float, done: float = 0.0) -> Generator[Callable[[float], None]]:
    """Show how much of ``total`` is done while the body calls what it is given with more.

    Args:
        what: the work, as it is shown
        done: by an earlier start; the time left is reckoned without it
    """
    console = Console(stderr=True)
    if not console.is_terminal:
        yield _lines(console, what, total, done)
        return
    columns = (TextColumn("{task.description}"), BarColumn(), TaskProgressColumn())
    with Progress(*columns, TimeRemainingColumn(), console=console, transient=True) as bar:
        task = bar.add_task(what, total=total)
        bar.update(task, completed=done)
        yield lambda amount: bar.update(task, completed=amount)


@contextmanager
def show_activity(what: str) -> Generator[None]:
    """Show that work goes on of which no one can say how far it is, and for how long."""
    console = Console(stderr=True)
    if not console.is_terminal:
        console.print(what, highlight=False, soft_wrap=True)
        yield
        return
    columns = (SpinnerColumn(), TextColumn("{task.description}"), TimeElapsedColumn())
    with Progress(*columns, console=console, transient=True) as bar:
        bar.add_task(what, total=None)
        yield


def _lines(console: Console, what: str, total: float, before: float) -> Callable[[float], None]:
    started = printed = time.monotonic()

    def update(done: float) -> None:
        nonlocal printed
        now = time.monotonic()
        if now - printed < _LINE_SECONDS or done <= before:
            return
        printed = now
        left = (now - started) / (done - before) * (total - done)
        console.print(
            f"{what}: {done / total:.0%}, {duration(left)} left", highlight=False, soft_wrap=True
        )

    return update
