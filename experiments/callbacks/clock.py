"""Time and tokens of a training."""

from __future__ import annotations

import time
from typing import Any

import lightning.pytorch as lightning

from transformer.data.batches import Batch


def completes_step(trainer: lightning.Trainer) -> bool:
    """Whether the micro-batch that has just ended is the last of its optimiser step."""
    return (trainer.fit_loop.batch_idx + 1) % trainer.accumulate_grad_batches == 0


class Clock(lightning.Callback):
    """Counts the seconds and real tokens of training over all sessions of a run.

    Attributes:
        seconds: of training, including validation in between
        device_seconds: the same, summed over the devices
        source_tokens: of all devices
        target_tokens: of all devices
    """

    def __init__(self) -> None:
        self._before = self._device_before = 0.0
        self._devices = 1
        self._started: float | None = None
        self._ended: float | None = None
        self.source_tokens = 0
        self.target_tokens = 0

    @property
    def seconds(self) -> float:
        """Time spent, including earlier sessions."""
        return self._before + self._session

    @property
    def device_seconds(self) -> float:
        """Time spent by all devices; each session may have had another number of them."""
        return self._device_before + self._devices * self._session

    @property
    def _session(self) -> float:
        if self._started is None:  # a resumed run with nothing left to train
            return 0.0
        return (self._ended or time.monotonic()) - self._started

    def state_dict(self) -> dict[str, Any]:
        """What a checkpoint keeps."""
        return {
            "seconds": self.seconds,
            "device_seconds": self.device_seconds,
            "source_tokens": self.source_tokens,
            "target_tokens": self.target_tokens,
        }

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Restore the counts of a checkpoint."""
        self._before = state_dict["seconds"]
        self._device_before = state_dict["device_seconds"]
        self.source_tokens = state_dict["source_tokens"]
        self.target_tokens = state_dict["target_tokens"]

    def on_train_start(self, trainer: lightning.Trainer, *args: Any, **kwargs: Any) -> None:
        """Start counting: what came before is loading, not training."""
        self._devices = trainer.world_size
        self._started = time.monotonic()

    def on_train_end(self, *args: Any, **kwargs: Any) -> None:
        """Stop counting."""
        self._ended = time.monotonic()

    def on_train_batch_end(
        self,
        trainer: lightning.Trainer,
        pl_module: lightning.LightningModule,
        outputs: Any,
        batch: Batch,
        batch_idx: int,
    ) -> None:
        """Count a step."""
        del pl_module, outputs, batch_idx
        if not completes_step(trainer):
            return
        self.source_tokens += batch.source_tokens
        self.target_tokens += batch.target_tokens
