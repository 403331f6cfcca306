"""Stopping early without losing work: a signal ends the run after a checkpoint."""

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
from experiments.callbacks.clock import completes_step
from experiments.command_line import stop_signals


class StoppedError(Exception):
    """A signal ended the run after a checkpoint; started again, it continues there."""

    def __init__(self, number: int, step: int) -> None:
        super().__init__(f"stopped at step {step}; the same command continues there")
        self.number, self.step = number, step


class StopOnSignal(lightning.Callback):
    """Ends training after the step in which a signal comes; a second signal ends it at once.

    Args:
        checkpoints: the callback after this one, which writes the last checkpoint
    """

    def __init__(self, checkpoints: Checkpoints) -> None:
        self._checkpoints = checkpoints
        self._ranks: _RankVote | None = None
        self._received: int | None = None
        self._ending = False
        self._handlers: dict[int, Any] = {}

    def on_train_start(self, trainer: lightning.Trainer, *args: Any, **kwargs: Any) -> None:
        """Replace the handlers of the signals, including Lightning's own."""
        if trainer.world_size > 1:
            self._ranks = _RankVote()
        if threading.current_thread() is threading.main_thread():
            for number in stop_signals():
                self._handlers[number] = signal.signal(number, self._receive)

    def on_train_batch_end(self, trainer: lightning.Trainer, *args: Any, **kwargs: Any) -> None:
        """Ask for a checkpoint if a signal has come."""
        if not completes_step(trainer):
            return
        received = self._received is not None
        if self._ranks is not None:
            received = self._ranks.exchange(received)
        if received:
            self._ending = True
            self._checkpoints.write_at_this_step()

    def on_train_batch_start(self, trainer: lightning.Trainer, *args: Any, **kwargs: Any) -> None:
        """Stop once the previous step is complete, with its validation and its checkpoint.

        Raises:
            StoppedError: if a signal has come.
        """
        if self._ending:
            raise StoppedError(self._received or signal.SIGTERM, trainer.global_step)

    def on_train_end(self, *args: Any, **kwargs: Any) -> None:
        """Restore the handlers, before Lightning restores those that it replaced itself."""
        for number, handler in self._handlers.items():
            signal.signal(number, handler)
        self._handlers = {}

    def on_exception(self, *args: Any, **kwargs: Any) -> None:
        """Restore the handlers."""
        self.on_train_end()

    def _receive(self, number: int, frame: FrameType | None) -> None:
        del frame
        if self._received is not None:
            sys.exit(128 + number)
        self._received = number


class _RankVote:
    """Lets all ranks stop at the same step.

    They tell each other of a signal while the next step is computed, through the CPU: a reduction
    on the GPU would have to wait for it.
    """

    def __init__(self) -> None:
        self._group = distributed.new_group(backend="gloo")
        self._pending: tuple[Any, Tensor] | None = None

    def exchange(self, received: bool) -> bool:
        """Send whether this rank has ``received`` a signal; return whether any rank had at the
        previous call.
        """
        answer = False
        if self._pending is not None:
            work, flag = self._pending
            work.wait()
            answer = bool(flag.item())
        flag = torch.tensor([received], dtype=torch.int32)
        work = distributed.all_reduce(
            flag, distributed.ReduceOp.MAX, group=self._group, async_op=True
        )
        self._pending = work, flag
        return answer
