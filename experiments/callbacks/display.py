"""Step, speed and time left of a training."""

from __future__ import annotations

import logging
import time
import warnings
from collections import deque
from typing import TYPE_CHECKING, Any

import lightning.pytorch as lightning

from experiments.callbacks.clock import completes_step
from experiments.records.progress import Progress, RunState
from transformer.data.batches import Batch

if TYPE_CHECKING:
    from experiments.display import Display  # tests/gpu imports this module without rich

# Reading the loss waits for the GPU, so it is read no more often than a person looks.
_SHOW_SECONDS = 0.5
# Speed is measured over the last steps, so that a slow first step is soon forgotten.
_WINDOW = 50


def quieten_lightning() -> None:
    """Hide the devices and tips that Lightning announces at every start, but not its errors."""
    for name in ("lightning.pytorch", "lightning.fabric"):
        logging.getLogger(name).setLevel(logging.ERROR)
    warnings.filterwarnings("ignore", module=r"lightning\..*")


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
