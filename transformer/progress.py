"""How far long work has come: a bar on a terminal, else a line now and then."""

from __future__ import annotations

import time
from collections.abc import Callable, Generator
from contextlib import contextmanager

from rich.console import Console
from rich.progress import (
    BarColumn,
    DownloadColumn,
    Progress,
    ProgressColumn,
    SpinnerColumn,
    TaskProgressColumn,
    TextColumn,
    TimeElapsedColumn,
    TimeRemainingColumn,
    TransferSpeedColumn,
)

from transformer.formats import duration, size

_LINE_SECONDS = 30.0

Update = Callable[[float], None]


@contextmanager
def show_progress(what: str, total: float, done: float = 0.0) -> Generator[Update]:
    """Show how much of ``total`` is done while the body calls what it is given with more.

    Args:
        what: the work, as it is shown
        done: by an earlier start; the time left is reckoned without it
    """

    def share(amount: float) -> str:
        return f"{amount / total:.0%}"

    with _shown(what, total, done, (TaskProgressColumn(),), share) as update:
        yield update


@contextmanager
def show_bytes(what: str, total: int | None, done: int = 0) -> Generator[Update]:
    """As :func:`show_progress`, of bytes, whose number may not be known."""
    of_all = "" if total is None else f" of {size(total)}"

    def amount(count: float) -> str:
        return size(count) + of_all

    columns = (DownloadColumn(), TransferSpeedColumn())
    with _shown(what, total, done, columns, amount) as update:
        yield update


@contextmanager
def show_activity(what: str) -> Generator[None]:
    """Show that work goes on of which no one can say how far it is, and for how long."""
    console = Console(stderr=True)
    if not console.is_terminal:
        console.print(what, highlight=False, markup=False, soft_wrap=True)
        yield
        return
    columns = (SpinnerColumn(), TextColumn("{task.description}"), TimeElapsedColumn())
    with Progress(*columns, console=console, transient=True) as bar:
        bar.add_task(what, total=None)
        yield


@contextmanager
def _shown(
    what: str,
    total: float | None,
    done: float,
    columns: tuple[ProgressColumn, ...],
    amount: Callable[[float], str],
) -> Generator[Update]:
    console = Console(stderr=True)
    if not console.is_terminal:
        yield _lines(console, what, total, done, amount)
        return
    named = (TextColumn("{task.description}"), BarColumn(), *columns, TimeRemainingColumn())
    with Progress(*named, console=console, transient=True) as bar:
        task = bar.add_task(what, total=total)
        bar.update(task, completed=done)
        yield lambda done: bar.update(task, completed=done)


def _lines(
    console: Console, what: str, total: float | None, before: float, amount: Callable[[float], str]
) -> Update:
    started = printed = time.monotonic()

    def update(done: float) -> None:
        nonlocal printed
        now = time.monotonic()
        if now - printed < _LINE_SECONDS:
            return
        printed = now
        left = ""
        if total is not None and done > before:
            seconds = (now - started) / (done - before) * max(0.0, total - done)
            left = f", {duration(seconds)} left"
        line = f"{what}: {amount(done)}{left}"
        console.print(line, highlight=False, markup=False, soft_wrap=True)

    return update
