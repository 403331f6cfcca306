"""``python -m tests.experiments.run.stop_two FOLDER DIRECTORY``: two devices train in two parts a
step, until the first one's time is up. Each prints the calls of ten steps to other ranks, and its
last step.
"""

import collections
import sys
from pathlib import Path
from typing import Any

import lightning.pytorch as lightning
from torch.profiler import ProfilerActivity, profile

from experiments.callbacks.metrics import Clock
from experiments.records.experiment import Limits
from experiments.run import run
from tests.experiments.samples import tiny_experiment

FIRST, LAST = 5, 15
_count_step = Clock.on_train_batch_end
_profiler = profile(activities=[ProfilerActivity.CPU])


def _observe(clock: Clock, trainer: lightning.Trainer, *args: Any) -> None:
    before = clock.target_tokens
    _count_step(clock, trainer, *args)
    if clock.target_tokens == before:
        return  # a part of a step
    if trainer.global_step == FIRST:
        _profiler.start()
    elif trainer.global_step == LAST:
        _profiler.stop()
        names = [event.name for event in _profiler.events() or () if "c10d::" in event.name]
        counts = collections.Counter(names)
        print("calls", *(f"{name}={count}" for name, count in sorted(counts.items())), flush=True)
        if trainer.is_global_zero:
            state = clock.state_dict()
            clock.load_state_dict(state | {"seconds": state["seconds"] + 3600.0})


def _tell_end(clock: Clock, trainer: lightning.Trainer, *args: Any) -> None:
    del clock, args
    print("ended", trainer.global_step, flush=True)


if __name__ == "__main__":
    folder, directory = map(Path, sys.argv[1:])
    Clock.on_train_batch_end = _observe  # pyright: ignore[reportAttributeAccessIssue]
    Clock.on_fit_end = _tell_end  # pyright: ignore[reportAttributeAccessIssue]
    never = 100_000
    experiment = tiny_experiment(
        folder,
        max_steps=never,
        log_every_steps=never,
        validate_every_steps=never,
        checkpoint_every_steps=never,
    )
    run(experiment, directory, devices=2, accumulate=2, limits=Limits(max_minutes=60.0))
