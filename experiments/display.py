"""Display a run's progress, and write ``progress.json``."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path

from experiments.records.ownership import is_first_rank
from experiments.records.progress import Progress, RunState, write_progress
from transformer.progress import show_progress

_FILE_SECONDS = 1.0


class Display:
    """Shows one stage after another, and writes ``progress.json`` into a run's directory.

    Only the first of several ranks does.
    """

    def __init__(self, directory: Path) -> None:
        self._directory, self._is_first = directory, is_first_rank()
        self._stage = ExitStack()
        self._show: Callable[[float, str], float | None] | None = None
        self._written = 0.0

    def start(self, stage: RunState, total: int = 0, done: int = 0) -> None:
        """Begin a stage of ``total`` steps or lines, ``done`` of them done; end the one before."""
        self.close()
        self._written = 0.0
        if self._is_first:
            write_progress(self._directory, Progress(stage=stage))
            if total:
                self._show = self._stage.enter_context(show_progress(stage, total, done))

    def update(self, progress: Progress) -> None:
        """Show how far the stage is; ``seconds_left`` is the most that it may still take."""
        if not self._is_first:
            return
        now = time.monotonic()
        left = self._show(progress.step, _numbers(progress)) if self._show else None
        if now - self._written >= _FILE_SECONDS or progress.step >= progress.max_steps:
            self._written = now
            known = [x for x in (left, progress.seconds_left) if x is not None]
            write_progress(
                self._directory, replace(progress, seconds_left=min(known, default=None))
            )

    def say(self, message: str) -> None:
        if self._is_first:
            print(message, file=sys.stderr, flush=True)

    def close(self) -> None:
        """End the stage."""
        self._stage.close()


def _numbers(progress: Progress) -> str:
    text = f"  {progress.step:,} of {progress.max_steps:,}"
    if progress.loss is not None:
        text += f"  loss {progress.loss:.3f}"
    speed = progress.tokens_per_second
    return text if speed is None else f"{text}  {speed:,.0f} tokens/s"
