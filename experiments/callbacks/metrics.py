"""``metrics.csv``, and the x-axes of what loggers get."""

from __future__ import annotations

import csv
import io
import warnings
from pathlib import Path
from typing import Any

import lightning.pytorch as lightning

from experiments.callbacks.clock import Clock, completes_step
from experiments.records.outputs import (
    COLUMNS,
    METRICS_FILE,
    TRAINING_COLUMNS,
    VALIDATION_COLUMNS,
    read_metrics,
)
from experiments.records.ownership import is_first_rank
from transformer.files import write_atomically


class LogMetrics(lightning.Callback):
    """Appends a line to ``metrics.csv`` for each logged step and each validation.

    Loggers get the step as in ``metrics.csv`` (Lightning itself counts it only after logging), the
    target tokens seen, and how many there were a second since the last logged step, without
    validations.

    Args:
        directory: of the run
        clock: a callback before this one, which counts the tokens
        every: steps between logged steps
        resumed_step: lines of later steps are dropped, as these steps are taken again
    """

    def __init__(self, directory: Path, clock: Clock, *, every: int, resumed_step: int) -> None:
        self._path = directory / METRICS_FILE
        self._clock, self._every = clock, every
        self._seconds, self._tokens = 0.0, 0  # of the clock, where the interval begins
        self._paused_at = 0.0
        if is_first_rank():
            self._drop_after(resumed_step)

    def on_train_start(self, *args: Any, **kwargs: Any) -> None:
        """Begin the first interval."""
        self._begin_interval()

    def on_train_batch_end(
        self,
        trainer: lightning.Trainer,
        pl_module: lightning.LightningModule,
        *args: Any,
        **kwargs: Any,
    ) -> None:
        """Log the figures of a logged step."""
        if completes_step(trainer) and trainer.global_step % self._every == 0:
            seconds = self._clock.seconds - self._seconds
            tokens = self._clock.target_tokens - self._tokens
            pl_module.log("train_tokens_per_second", tokens / max(seconds, 1e-9))
            self._begin_interval()
            self._log_axes(trainer, pl_module)
            self._append(trainer, TRAINING_COLUMNS)

    def on_validation_start(self, *args: Any, **kwargs: Any) -> None:
        """Leave validation out of the speed."""
        self._paused_at = self._clock.seconds

    def on_validation_epoch_end(
        self, trainer: lightning.Trainer, pl_module: lightning.LightningModule
    ) -> None:
        """Log the axes of a validation."""
        self._log_axes(trainer, pl_module)

    def on_validation_end(self, trainer: lightning.Trainer, *args: Any, **kwargs: Any) -> None:
        """Write the figures of a validation."""
        self._seconds += self._clock.seconds - self._paused_at
        self._append(trainer, VALIDATION_COLUMNS)

    def _begin_interval(self) -> None:
        self._seconds, self._tokens = self._clock.seconds, self._clock.target_tokens

    def _log_axes(self, trainer: lightning.Trainer, module: lightning.LightningModule) -> None:
        # Lightning takes the figure of this name for the step.
        module.log("step", float(trainer.global_step))
        module.log("tokens_seen", float(self._clock.target_tokens))

    def _append(self, trainer: lightning.Trainer, names: tuple[str, ...]) -> None:
        if trainer.is_global_zero:
            line = {name: f"{float(trainer.callback_metrics[name]):.6g}" for name in names}
            with self._path.open("a", encoding="utf-8", newline="") as file:
                csv.DictWriter(file, COLUMNS).writerow({"step": trainer.global_step} | line)

    def _drop_after(self, step: int) -> None:
        lines, damaged = read_metrics(self._path.parent)
        if damaged:
            warnings.warn(f"{self._path}: {damaged} damaged line(s) dropped", stacklevel=4)
        kept = io.StringIO(newline="")
        csv.writer(kept).writerows([COLUMNS, *(line for line in lines if int(line[0]) <= step)])
        write_atomically(self._path, kept.getvalue())
