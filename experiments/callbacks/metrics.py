"""Count, log and show the metrics of training."""

from __future__ import annotations

import logging
import time
import warnings
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from lightning.pytorch import Callback, LightningModule, Trainer

from experiments.records.outputs import (
    COLUMNS,
    METRICS_FILE,
    SPEED_COLUMNS,
    SPEED_FILE,
    TRAINING_COLUMNS,
    VALIDATION_COLUMNS,
    read_metrics,
    read_speeds,
)
from experiments.records.ownership import is_first_rank
from experiments.records.progress import Progress, RunState
from transformer.data.batches import Batch
from transformer.files import open_plain, write_atomically

if TYPE_CHECKING:
    from experiments.display import Display  # tests/gpu imports this module without rich

# Reading the loss waits for the GPU, so it is read no more often than a person looks.
_SHOW_SECONDS = 0.5


def quieten_lightning() -> None:
    """Hide the devices and tips that Lightning announces at every start, but not its errors."""
    for name in ("lightning.pytorch", "lightning.fabric"):
        logging.getLogger(name).setLevel(logging.ERROR)
    warnings.filterwarnings("ignore", module=r"lightning\..*")


def completes_step(trainer: Trainer) -> bool:
    """Whether the micro-batch that has just ended is the last of its optimizer step."""
    return (trainer.fit_loop.batch_idx + 1) % trainer.accumulate_grad_batches == 0


class Clock(Callback):
    """Counts the wall-clock seconds of training, validation included, and the tokens of all
    devices, without padding, over all sessions of a run.
    """

    def __init__(self) -> None:
        self._before = 0.0
        self._started: float | None = None
        self._saved: float | None = None
        self._ended: float | None = None
        self.source_tokens = 0
        self.target_tokens = 0

    @property
    def seconds(self) -> float:
        """Time spent, including earlier sessions."""
        if self._started is None:  # a resumed run with nothing left to train
            return self._before
        return self._before + (self._ended or time.monotonic()) - self._started

    def state_dict(self) -> dict[str, Any]:
        self._saved = time.monotonic()
        return {
            "seconds": self._before + self._saved - (self._started or self._saved),
            "source_tokens": self.source_tokens,
            "target_tokens": self.target_tokens,
        }

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        self._before = float(state_dict["seconds"])
        self.source_tokens = int(state_dict["source_tokens"])
        self.target_tokens = int(state_dict["target_tokens"])

    def on_train_start(self, *args: Any, **kwargs: Any) -> None:
        self._started = time.monotonic()

    def on_train_end(self, *args: Any, **kwargs: Any) -> None:
        # Without the time to write the last checkpoint, so that every run that continues from it
        # has spent the same time.
        self._ended = self._saved or time.monotonic()

    def on_train_batch_end(
        self, trainer: Trainer, pl_module: Any, outputs: Any, batch: Batch, batch_idx: int
    ) -> None:
        if completes_step(trainer):
            self.source_tokens += batch.source_tokens
            self.target_tokens += batch.target_tokens


class LogMetrics(Callback):
    """Appends a line to ``metrics.csv`` for each logged step and each validation, and the tokens
    per second of each logged step to ``speed.csv``.

    Loggers get the step as in ``metrics.csv`` (Lightning itself counts it only after logging), the
    target tokens seen, and those per second since the last logged step, without validations.

    Args:
        clock: a callback before this one, which counts the tokens
        every: steps between logged steps
        resumed_step: lines of later steps are dropped, as these steps are taken again
    """

    def __init__(self, directory: Path, clock: Clock, *, every: int, resumed_step: int) -> None:
        self._path, self._speed_path = directory / METRICS_FILE, directory / SPEED_FILE
        self._clock, self._every = clock, every
        self._seconds, self._tokens = 0.0, 0  # the clock's, when the last logged step ended
        self._paused_at = 0.0
        if is_first_rank():
            for path, columns, found in (
                (self._path, COLUMNS, read_metrics(directory)),
                (self._speed_path, SPEED_COLUMNS, read_speeds(directory)),
            ):
                kept = [line for line in found if int(line[0]) <= resumed_step]
                write_atomically(path, "".join(map(_csv_line, [columns, *kept])))

    def on_train_start(self, *args: Any, **kwargs: Any) -> None:
        self._begin_interval()

    def _begin_interval(self) -> None:
        self._seconds, self._tokens = self._clock.seconds, self._clock.target_tokens

    def on_train_batch_end(
        self, trainer: Trainer, pl_module: LightningModule, *args: Any, **kwargs: Any
    ) -> None:
        if completes_step(trainer) and trainer.global_step % self._every == 0:
            seconds = self._clock.seconds - self._seconds
            tokens = self._clock.target_tokens - self._tokens
            speed = tokens / max(seconds, 1e-9)
            pl_module.log("train_tokens_per_second", speed)
            self._begin_interval()
            self._log_axes(trainer, pl_module)
            self._append(trainer, TRAINING_COLUMNS)
            if trainer.is_global_zero:
                _append_line(self._speed_path, [str(trainer.global_step), f"{speed:.6g}"])

    def on_validation_start(self, *args: Any, **kwargs: Any) -> None:
        self._paused_at = self._clock.seconds

    def on_validation_epoch_end(self, trainer: Trainer, pl_module: LightningModule) -> None:
        self._log_axes(trainer, pl_module)

    def on_validation_end(self, trainer: Trainer, *args: Any, **kwargs: Any) -> None:
        self._seconds += self._clock.seconds - self._paused_at
        self._append(trainer, VALIDATION_COLUMNS)

    def _log_axes(self, trainer: Trainer, module: LightningModule) -> None:
        # Lightning takes the metric of this name as the step.
        module.log("step", float(trainer.global_step))
        module.log("tokens_seen", float(self._clock.target_tokens))

    def _append(self, trainer: Trainer, names: tuple[str, ...]) -> None:
        if trainer.is_global_zero:
            values = {name: f"{float(trainer.callback_metrics[name]):.6g}" for name in names}
            values["step"] = str(trainer.global_step)
            _append_line(self._path, [values.get(name, "") for name in COLUMNS])


def _append_line(path: Path, fields: Sequence[str]) -> None:
    with open_plain(path, "ab") as file:
        file.write(_csv_line(fields).encode())


def _csv_line(fields: Sequence[str]) -> str:
    return f"{','.join(fields)}\r\n"


class ShowTraining(Callback):
    """Updates the display during training.

    Args:
        clock: a callback before this one
        max_seconds: training time after which training ends; None for no limit
    """

    def __init__(self, display: Display, clock: Clock, max_seconds: float | None) -> None:
        self._display, self._clock, self._max_seconds = display, clock, max_seconds
        self._shown = 0.0

    def on_train_batch_end(self, trainer: Trainer, *args: Any, **kwargs: Any) -> None:
        if not trainer.is_global_zero or not completes_step(trainer):
            return
        now, step = time.monotonic(), trainer.global_step
        if now - self._shown < _SHOW_SECONDS and step < trainer.max_steps:
            return
        self._shown = now
        limit = self._max_seconds
        names = ("loss", "train_tokens_per_second")
        loss, speed = (trainer.callback_metrics.get(name) for name in names)
        self._display.update(
            Progress(
                stage=RunState.TRAIN,
                step=step,
                max_steps=trainer.max_steps,
                loss=None if loss is None else float(loss),
                tokens_per_second=None if speed is None else float(speed),
                seconds_left=None if limit is None else max(0.0, limit - self._clock.seconds),
            )
        )
