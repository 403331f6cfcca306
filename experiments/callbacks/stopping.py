"""Stop early without losing work."""

from __future__ import annotations

import signal
import sys
import threading
import time
from types import FrameType
from typing import Any

import torch
import torch.distributed as distributed
from lightning.pytorch import Callback, Trainer
from torch import Tensor

from experiments.callbacks.checkpoints import Checkpoints
from experiments.callbacks.metrics import Clock, completes_step
from experiments.records.progress import stop_signals
from transformer.errors import InputError

_ONE_SIGNAL_SECONDS = 2.0  # a second signal within this time counts as the first


class StoppedError(Exception):
    """A signal ended the run after a checkpoint; started again, it continues there."""

    def __init__(self, number: int, step: int) -> None:
        super().__init__(f"stopped at step {step}; the same command continues there")
        self.number, self.step = number, step


class StopEarly(Callback):
    """Ends training after the step during which a signal arrives or the time runs out.

    A second signal ends it at once, unless it follows within two seconds: SLURM signals every
    process of a job, and the parent process passes its signal on as well. Several ranks end
    together, one step later.

    Args:
        clock: a callback before this one
        checkpoints: a callback after this one, which writes the last checkpoint
        max_seconds: limit of the training time by the first rank's clock; None for no limit
    """

    def __init__(self, clock: Clock, checkpoints: Checkpoints, max_seconds: float | None) -> None:
        self._clock, self._checkpoints = clock, checkpoints
        self._max_seconds = float("inf") if max_seconds is None else max_seconds
        self._ranks: RankVote | None = None
        self._received: int | None = None
        self._received_at = 0.0
        self._ending = False
        self._handlers: dict[int, Any] = {}

    def on_train_start(self, trainer: Trainer, *args: Any, **kwargs: Any) -> None:
        if trainer.world_size > 1:
            _check_same(trainer)
            self._ranks = RankVote()
            # Lightning would broadcast, and wait for the GPU, before every micro-batch to learn
            # whether its own handler has been called.
            loop: Any = trainer.fit_loop.epoch_loop
            loop._broadcast_sigterm_tensor = lambda: None
        if threading.current_thread() is threading.main_thread():
            for number in stop_signals():
                self._handlers[number] = signal.signal(number, self._receive)

    def on_train_batch_end(self, trainer: Trainer, *args: Any, **kwargs: Any) -> None:
        if not completes_step(trainer):
            return
        received = self._received is not None
        time_is_up = trainer.is_global_zero and self._clock.seconds >= self._max_seconds
        if self._ranks is not None:
            received, time_is_up = self._ranks.exchange(received, time_is_up)
        if time_is_up:
            trainer.should_stop = True
        if received:
            self._ending = True
            self._checkpoints.write_at_this_step()

    def on_train_batch_start(self, trainer: Trainer, *args: Any, **kwargs: Any) -> None:
        if self._ending:  # the step before is complete, with its validation and its checkpoint
            raise StoppedError(self._received or signal.SIGTERM, trainer.global_step)

    def on_train_end(self, *args: Any, **kwargs: Any) -> None:
        # Before Lightning restores those that it replaced itself.
        for number, handler in self._handlers.items():
            signal.signal(number, handler)
        self._handlers = {}

    def on_exception(self, *args: Any, **kwargs: Any) -> None:
        self.on_train_end()

    def _receive(self, number: int, _frame: FrameType | None) -> None:
        if self._received is None:
            self._received, self._received_at = number, time.monotonic()
        elif time.monotonic() - self._received_at > _ONE_SIGNAL_SECONDS:
            sys.exit(128 + number)


def _check_same(trainer: Any) -> None:
    """Check that all ranks begin at the same step, with the same data."""
    begun = trainer.global_step, trainer.datamodule.corpus.manifest.digest
    is_same = trainer.strategy.broadcast(begun) == begun
    if not trainer.strategy.reduce_boolean_decision(is_same):
        raise InputError(
            f"some processes of this run do not begin at step {begun[0]} with the same data: its "
            "directory and its text must lie on a disk that all machines see"
        )


class RankVote:
    """Lets all ranks stop at the same step.

    Their votes after each step are added up on the CPU while the next step is computed: a reduction
    on the GPU would have to wait for it.
    """

    def __init__(self) -> None:
        self._group = distributed.new_group(backend="gloo")
        self._pending: tuple[Any, Tensor] | None = None

    def exchange(self, received: bool, up: bool) -> tuple[bool, bool]:
        """Vote after a step on whether a signal was received and whether the time is up.

        Returns:
            For each, whether any rank voted yes after the step before.
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
