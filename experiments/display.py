"""Display a run's progress, and write ``progress.json``."""

from __future__ import annotations

import time
from pathlib import Path

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, TextColumn, TimeElapsedColumn
from rich.progress import Progress as Bar

from experiments.records.ownership import is_first_rank
from experiments.records.progress import Progress, RunState, write_progress
from transformer.formats import duration

_FILE_SECONDS = 1.0
_LINE_SECONDS = 30.0


class Display:
    """Shows one stage after another: a bar on a terminal, otherwise a line now and then.

    Only the first of several ranks shows anything.

    Args:
        directory: of the run, for ``progress.json``
        console: where to print; None for standard error
    """

    def __init__(self, directory: Path, console: Console | None = None) -> None:
        self._directory = directory if is_first_rank() else None
        self._console = console or Console(stderr=True, quiet=not is_first_rank())
        self._bar: Bar | None = None
        self._written = self._printed = 0.0

    def start(self, stage: RunState) -> None:
        """Begin a stage, and end the one before."""
        self.close()
        self._written = self._printed = 0.0
        if self._directory is not None:
            write_progress(self._directory, Progress(stage=stage))
        # Preparation shows bars of its own for downloads and for each of its steps.
        if self._console.is_terminal and stage != RunState.PREPARE:
            columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn())
            figures = TextColumn("{task.fields[figures]}")
            self._bar = Bar(*columns, TimeElapsedColumn(), figures, console=self._console)
            self._bar.start()
            self._bar.add_task(stage, total=None, figures="")

    def update(self, progress: Progress) -> None:
        now = time.monotonic()
        done = progress.step >= progress.max_steps
        if self._directory is not None and (now - self._written >= _FILE_SECONDS or done):
            self._written = now
            write_progress(self._directory, progress)
        if self._bar is not None:
            task = self._bar.task_ids[0]
            self._bar.update(
                task, completed=progress.step, total=progress.max_steps, figures=_figures(progress)
            )
        elif now - self._printed >= _LINE_SECONDS or done:
            self._printed = now
            at = f"{progress.step}/{progress.max_steps}"
            self._console.print(f"{progress.stage} {at}  {_figures(progress)}", highlight=False)

    def say(self, message: str) -> None:
        self._console.print(message, highlight=False, soft_wrap=True)

    def close(self) -> None:
        """Take the bar off the terminal."""
        if self._bar is not None:
            self._bar.stop()
            self._bar = None


def _figures(progress: Progress) -> str:
    parts: list[str] = []
    if progress.loss is not None:
        parts.append(f"loss {progress.loss:.3f}")
    if progress.tokens_per_second is not None:
        parts.append(f"{progress.tokens_per_second:,.0f} tokens/s")
    if progress.seconds_left is not None:
        parts.append(f"{duration(progress.seconds_left)} left")
    return "  ".join(parts)
