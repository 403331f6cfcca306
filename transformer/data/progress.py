"""How far a long work on bytes is: a bar on a terminal, else a line now and then."""

from __future__ import annotations

import time
from collections.abc import Callable, Generator
from contextlib import contextmanager

from rich.console import Console
from rich.progress import (
    BarColumn,
    DownloadColumn,
    Progress,
    TextColumn,
    TimeRemainingColumn,
    TransferSpeedColumn,
)

from transformer.data.space import shown

_LINE_SECONDS = 30.0


@contextmanager
def show_bytes(stage: str, total: int | None, done: int = 0) -> Generator[Callable[[int], None]]:
    """Show a stage such as "fetch corpus.tgz" on standard error; tell it the bytes done so far."""
    console = Console(stderr=True)
    if not console.is_terminal:
        yield _in_lines(console, stage, total)
        return
    columns = (
        TextColumn("{task.description}"),
        BarColumn(),
        DownloadColumn(),
        TransferSpeedColumn(),
        TimeRemainingColumn(),
    )
    with Progress(*columns, console=console, transient=True) as progress:
        task = progress.add_task(stage, total=total, completed=done)
        yield lambda done: progress.update(task, completed=done)


def _in_lines(console: Console, stage: str, total: int | None) -> Callable[[int], None]:
    last = time.monotonic()
    of_all = "" if total is None else f" of {shown(total)}"

    def show(done: int) -> None:
        nonlocal last
        if time.monotonic() - last >= _LINE_SECONDS:
            last = time.monotonic()
            console.print(
                f"{stage}: {shown(done)}{of_all}", highlight=False, markup=False, soft_wrap=True
            )

    return show
