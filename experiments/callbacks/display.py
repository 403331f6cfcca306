"""What a person sees while a run goes on, and what other processes read of it."""

from __future__ import annotations

import time
from collections import deque
from pathlib import Path
from typing import Any

import lightning.pytorch as lightning
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, TextColumn, TimeElapsedColumn
from rich.progress import Progress as Bar

from experiments.callbacks.steps import completes_step
from experiments.run.progress import Progress, RunState, write_progress
from transformer.data.batches import Batch
from transformer.formats import duration

_FILE_SECONDS = 1.0
_LINE_SECONDS = 30.0
# Reading the loss waits for the GPU, so it is read no more often than a person looks.
_SHOW_SECONDS = 0.5
# Speed is that of the last steps, so that an early slow one is soon forgotten.
_WINDOW = 50


class Display:
    """Shows one stage after the other: a bar on a terminal, else a line now and then.

    The same figures go to ``progress.json`` in ``directory``, where one is given.
    """

    def __init__(self, directory: Path | None, console: Console | None = None) -> None:
        self._directory = directory
        self._console = console or Console(stderr=True)
        self._bar: Bar | None = None
        self._stage = RunState.PREPARE
        self._written = self._printed = 0.0

    def start(self, stage: RunState) -> None:
        """Begin a stage; the one before it is over."""
        self.stop()
        self._stage = stage
        self._written = self._printed = 0.0
        if self._directory is not None:
            write_progress(self._directory, Progress(stage=stage))
        # Preparing has bars of its own, for each archive and each of its stages.
        if self._console.is_terminal and stage != RunState.PREPARE:
            columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn())
            figures = TextColumn("{task.fields[figures]}")
            self._bar = Bar(*columns, TimeElapsedColumn(), figures, console=self._console)
            self._bar.start()
            self._bar.add_task(stage, total=None, figures="")

    def update(self, progress: Progress) -> None:
        """Show how far the stage is."""
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
        """Print a line of its own."""
        self._console.print(message, highlight=False, soft_wrap=True)

    def stop(self) -> None:
        """End the bar."""
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


class ShowTraining(lightning.Callback):
    """Feeds the display from training.

    Args:
        max_steps: at which training ends
        max_seconds: of training, after which it ends sooner; None for no limit
    """

    def __init__(self, display: Display, max_steps: int, max_seconds: float | None) -> None:
        self._display = display
        self._max_steps, self._max_seconds = max_steps, max_seconds
        self._times: deque[tuple[float, int]] = deque(maxlen=_WINDOW)
        self._started = self._shown = 0.0

    def on_train_start(self, *args: Any, **kwargs: Any) -> None:
        """Begin."""
        self._started = time.monotonic()

    def on_train_batch_end(
        self,
        trainer: lightning.Trainer,
        pl_module: lightning.LightningModule,
        outputs: Any,
        batch: Batch,
        batch_idx: int,
    ) -> None:
        """Show the step; the loss is the last that was logged."""
        del pl_module, outputs, batch_idx
        if not trainer.is_global_zero or not completes_step(trainer):
            return
        now = time.monotonic()
        self._times.append((now, batch.target_tokens))
        if now - self._shown < _SHOW_SECONDS and trainer.global_step < self._max_steps:
            return
        self._shown = now
        loss = trainer.callback_metrics.get("loss")
        speed, left = self._speed_and_time_left(now, self._max_steps - trainer.global_step)
        self._display.update(
            Progress(
                stage=RunState.TRAIN,
                step=trainer.global_step,
                max_steps=self._max_steps,
                loss=None if loss is None else float(loss),
                tokens_per_second=speed,
                seconds_left=left,
            )
        )

    def _speed_and_time_left(
        self, now: float, steps_left: int
    ) -> tuple[float | None, float | None]:
        elapsed = now - self._times[0][0]
        if elapsed <= 0:
            return None, None
        speed = sum(tokens for _, tokens in list(self._times)[1:]) / elapsed
        left = steps_left * elapsed / (len(self._times) - 1)
        if self._max_seconds is not None:
            left = min(left, max(0.0, self._max_seconds - (now - self._started)))
        return speed, left
