"""Ending early, but whole: a signal lets the current step finish and a checkpoint be written."""

from __future__ import annotations

import signal
import sys
import threading
from types import FrameType
from typing import Any

import lightning.pytorch as lightning
import torch
import torch.distributed as distributed
from torch import Tensor

from experiments.callbacks.checkpoints import Checkpoints
from experiments.callbacks.steps import completes_step

# The last is what SLURM warns with before it takes a machine away.
_SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGUSR1)


class StoppedError(Exception):
    """A signal ended the run after a checkpoint; started again, it goes on there."""

    def __init__(self, number: int, step: int) -> None:
        super().__init__(f"stopped at step {step}; the same command goes on there")
        self.number, self.step = number, step


class StopOnSignal(lightning.Callback):
    """SIGINT, SIGTERM and SIGUSR1 end training after the current step; a second one ends at once.

    Args:
        checkpoints: writes one before the end; comes after this callback
    """

    def __init__(self, checkpoints: Checkpoints) -> None:
        self._checkpoints = checkpoints
        self._ranks: _Ranks | None = None
        self._received: int | None = None
        self._ending = False
        self._handlers: dict[int, Any] = {}

    def on_train_start(self, trainer: lightning.Trainer, *args: Any, **kwargs: Any) -> None:
        """Take the signals over, from Lightning's own handlers too."""
        if trainer.world_size > 1:
            self._ranks = _Ranks()
        if threading.current_thread() is threading.main_thread():
            self._handlers = {s: signal.signal(s, self._receive) for s in _SIGNALS}

    def on_train_batch_end(self, trainer: lightning.Trainer, *args: Any, **kwargs: Any) -> None:
        """Ask for a checkpoint if a signal has come."""
        if not completes_step(trainer):
            return
        received = self._received is not None
        if self._ranks is not None:
            received = self._ranks.any_before(received)
        if received:
            self._ending = True
            self._checkpoints.end()

    def on_train_batch_start(self, trainer: lightning.Trainer, *args: Any, **kwargs: Any) -> None:
        """Stop once the step before is complete, its validation and its checkpoint too.

        Raises:
            StoppedError: if a signal has come.
        """
        if self._ending:
            raise StoppedError(self._received or signal.SIGTERM, trainer.global_step)

    def on_train_end(self, *args: Any, **kwargs: Any) -> None:
        """Give the signals back, before Lightning gives back those that it took over itself."""
        for number, handler in self._handlers.items():
            signal.signal(number, handler)
        self._handlers = {}

    def on_exception(self, *args: Any, **kwargs: Any) -> None:
        """Give the signals back."""
        self.on_train_end()

    def _receive(self, number: int, frame: FrameType | None) -> None:
        del frame
        if self._received is not None:
            sys.exit(128 + number)
        self._received = number


class _Ranks:
    """Lets ranks end at the same step. They tell each other of a signal while the next step is
    computed, through the CPU: a GPU would have to be waited for.
    """

    def __init__(self) -> None:
        self._group = distributed.new_group(backend="gloo")
        self._asked: tuple[Any, Tensor] | None = None

    def any_before(self, received: bool) -> bool:
        """Whether any rank had ``received`` a signal when this was called last."""
        asked, answer = self._asked, False
        if asked is not None:
            asked[0].wait()
            answer = bool(asked[1].item())
        flag = torch.tensor([received], dtype=torch.int32)
        work = distributed.all_reduce(
            flag, distributed.ReduceOp.MAX, group=self._group, async_op=True
        )
        self._asked = work, flag
        return answer
