"""Stop early without losing work."""

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
from experiments.callbacks.metrics import Clock, completes_step
from experiments.records.progress import stop_signals


class StoppedError(Exception):
    """A signal ended the run after a checkpoint; started again, it continues there."""

    def __init__(self, number: int, step: int) -> None:
        super().__init__(f"stopped at step {step}; the same command continues there")
        self.number, self.step = number, step


class StopEarly(lightning.Callback):
    """Ends training after the step in which a signal comes, or the time is up; a second signal ends
    it at once. Several ranks end at the same step, one later.

    Args:
        clock: a callback before this one
        checkpoints: a callback after this one, which writes the last checkpoint
        max_seconds: of training, by the first rank's clock; None for no limit
    """

    def __init__(
        self, clock: Clock, checkpoints: Checkpoints, max_seconds: float | None = None
    ) -> None:
        self._clock, self._checkpoints = clock, checkpoints
        self._max_seconds = float("inf") if max_seconds is None else max_seconds
        self._ranks: RankVote | None = None
        self._received: int | None = None
        self._ending = False
        self._handlers: dict[int, Any] = {}

    def on_train_start(self, trainer: lightning.Trainer, *args: Any, **kwargs: Any) -> None:
        if trainer.world_size > 1:
            self._ranks = RankVote()
            # Lightning would broadcast, and wait for the GPU, before every micro-batch to learn
            # whether its own handler has been called.
            loop: Any = trainer.fit_loop.epoch_loop
            loop._broadcast_sigterm_tensor = lambda: None
        if threading.current_thread() is threading.main_thread():
            for number in stop_signals():
                self._handlers[number] = signal.signal(number, self._receive)

    def on_train_batch_end(self, trainer: lightning.Trainer, *args: Any, **kwargs: Any) -> None:
        if not completes_step(trainer):
            return
        received = self._received is not None
        up = trainer.is_global_zero and self._clock.seconds >= self._max_seconds
        if self._ranks is not None:
            received, up = self._ranks.exchange(received, up)
        if up:
            trainer.should_stop = True
        if received:
            self._ending = True
            self._checkpoints.write_at_this_step()

    def on_train_batch_start(self, trainer: lightning.Trainer, *args: Any, **kwargs: Any) -> None:
        if self._ending:  # the step before is complete, with its validation and its checkpoint
            raise StoppedError(self._received or signal.SIGTERM, trainer.global_step)

    def on_train_end(self, *args: Any, **kwargs: Any) -> None:
        # Before Lightning restores those that it replaced itself.
        for number, handler in self._handlers.items():
            signal.signal(number, handler)
        self._handlers = {}

    def on_exception(self, *args: Any, **kwargs: Any) -> None:
        self.on_train_end()

    def _receive(self, number: int, frame: FrameType | None) -> None:
        del frame
        if self._received is not None:
            sys.exit(128 + number)
        self._received = number


class RankVote:
    """Lets all ranks stop at the same step.

    After each step they tell each other what they know, while the next step is computed and through
    the CPU: a reduction on the GPU would have to wait for it.
    """

    def __init__(self) -> None:
        self._group = distributed.new_group(backend="gloo")
        self._pending: tuple[Any, Tensor] | None = None

    def exchange(self, received: bool, up: bool) -> tuple[bool, bool]:
        """Say after a step whether a signal has been received and whether the time is up; returns
        what any rank had to say at the step before.
        """
        answer = False, False
        if self._pending is not None:
            work, votes = self._pending
            work.wait()
            answer = bool(votes[0]), bool(votes[1])
        votes = torch.tensor([received, up], dtype=torch.uint8)
        work = distributed.all_reduce(
            votes, distributed.ReduceOp.MAX, group=self._group, async_op=True
        )
        self._pending = work, votes
        return answer
