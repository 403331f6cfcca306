"""What a person sees of a run in progress, and ``progress.json`` for other processes."""

from __future__ import annotations

import logging
import time
import warnings
from collections import deque
from pathlib import Path
from typing import TYPE_CHECKING, Any

import lightning.pytorch as lightning

from experiments.callbacks.clock import completes_step
from experiments.run.devices import is_first_rank
from experiments.run.progress import Progress, RunState, write_progress
from transformer.data.batches import Batch
from transformer.formats import duration

if TYPE_CHECKING:
    from rich.console import Console
    from rich.progress import Progress as Bar

_FILE_SECONDS = 1.0
_LINE_SECONDS = 30.0
# Reading the loss waits for the GPU, so it is read no more often than a person looks.
_SHOW_SECONDS = 0.5
# Speed is measured over the last steps, so that a slow first step is soon forgotten.
_WINDOW = 50


def quieten_lightning() -> None:
    """Hide the devices and tips that Lightning announces at every start, but not its errors."""
    for name in ("lightning.pytorch", "lightning.fabric"):
        logging.getLogger(name).setLevel(logging.ERROR)
    warnings.filterwarnings("ignore", module=r"lightning\..*")


class Display:
    """Shows one stage after the other: a bar on a terminal, otherwise a line now and then.

    Only the first of several ranks shows anything.

    Args:
        directory: of the run, for ``progress.json``; None writes no file
        console: where to print; None for standard error
    """

    def __init__(self, directory: Path | None, console: Console | None = None) -> None:
        self._directory = directory if is_first_rank() else None
        from rich.console import Console  # the benchmark imports this module and has no rich

        self._console = console or Console(stderr=True, quiet=not is_first_rank())
        self._bar: Bar | None = None
        self._written = self._printed = 0.0

    def __enter__(self) -> Display:
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    def start(self, stage: RunState) -> None:
        """Begin a stage, and end the one before."""
        self.stop()
        self._written = self._printed = 0.0
        if self._directory is not None:
            write_progress(self._directory, Progress(stage=stage))
        # Preparation shows bars of its own for downloads and for each of its steps.
        if self._console.is_terminal and stage != RunState.PREPARE:
            from rich.progress import BarColumn, MofNCompleteColumn, TextColumn, TimeElapsedColumn
            from rich.progress import Progress as Bar

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
        """Print a message on a line of its own."""
        self._console.print(message, highlight=False, soft_wrap=True)

    def stop(self) -> None:
        """Remove the bar."""
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
    """Updates the display during training.

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
        """Note the time."""
        self._started = time.monotonic()

    def on_train_batch_end(
        self,
        trainer: lightning.Trainer,
        pl_module: lightning.LightningModule,
        outputs: Any,
        batch: Batch,
        batch_idx: int,
    ) -> None:
        """Show the step, with the loss that was logged last."""
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
