"""Ending early, but whole: a signal lets the current step finish and a checkpoint be written."""

from __future__ import annotations

import signal
import sys
import threading
from types import FrameType
from typing import Any

import lightning.pytorch as lightning

from experiments.checkpoints import Checkpoints

_SIGNALS = (signal.SIGINT, signal.SIGTERM)


class StoppedError(Exception):
    """A signal ended the run after a checkpoint; started again, it goes on there."""

    def __init__(self, number: int, step: int) -> None:
        super().__init__(f"stopped at step {step}; the same command goes on there")
        self.number = number


class StopOnSignal(lightning.Callback):
    """SIGINT and SIGTERM end training after the current step; a second one ends at once."""

    def __init__(self, checkpoints: Checkpoints) -> None:
        self._checkpoints = checkpoints
        self._received: int | None = None
        self._handlers: dict[int, Any] = {}

    def on_train_start(self, *args: Any, **kwargs: Any) -> None:
        """Take the signals over, from Lightning's own handlers too."""
        if threading.current_thread() is threading.main_thread():
            self._handlers = {s: signal.signal(s, self._receive) for s in _SIGNALS}

    def on_train_batch_end(self, trainer: lightning.Trainer, *args: Any, **kwargs: Any) -> None:
        """Stop if a signal has come.

        Raises:
            StoppedError: after the checkpoint.
        """
        if self._received is not None:
            self._checkpoints.save(trainer)
            self.teardown()
            raise StoppedError(self._received, trainer.global_step)

    def teardown(self, *args: Any, **kwargs: Any) -> None:
        """Give the signals back."""
        for number, handler in self._handlers.items():
            signal.signal(number, handler)
        self._handlers = {}

    def _receive(self, number: int, frame: FrameType | None) -> None:
        del frame
        if self._received is not None:
            sys.exit(128 + number)
        self._received = number
