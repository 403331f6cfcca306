"""A signal ends a run after a checkpoint; the handlers are restored."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import lightning.pytorch as lightning
import pytest
import torch.distributed as distributed
from torch._C._distributed_c10d import HashStore

from experiments.callbacks.display import ShowTraining
from experiments.callbacks.stopping import RankVote, StoppedError
from experiments.records.checkpoints import step_checkpoints
from experiments.records.progress import STOP_SIGNALS
from experiments.run import run
from tests.experiments.samples import assert_same_end, tiny_experiment


def _signal_at(step: int, number: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Send a signal in the middle of a step, once."""
    original = ShowTraining.on_train_batch_end

    def show(self: ShowTraining, trainer: lightning.Trainer, *args: object) -> None:
        if trainer.global_step == step:
            os.kill(os.getpid(), number)
        original(self, trainer, *args)  # pyright: ignore[reportArgumentType]

    monkeypatch.setattr(ShowTraining, "on_train_batch_end", show)


def test_a_run_restores_the_handlers_and_leaves_sighup_ignored_under_nohup(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    hangup = signal.signal(signal.SIGHUP, signal.SIG_IGN)
    try:
        before = [signal.getsignal(number) for number in STOP_SIGNALS]
        _signal_at(1, signal.SIGHUP, monkeypatch)
        run(tiny_experiment(folder, max_steps=2), tmp_path)
        assert [signal.getsignal(number) for number in STOP_SIGNALS] == before
    finally:
        signal.signal(signal.SIGHUP, hangup)


@pytest.mark.parametrize("number", STOP_SIGNALS)
def test_each_signal_stops_a_run_after_a_checkpoint(
    number: signal.Signals, folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    before = [signal.getsignal(number) for number in STOP_SIGNALS]
    _signal_at(3, number, monkeypatch)
    with pytest.raises(StoppedError, match="stopped at step 4") as caught:
        run(tiny_experiment(folder), tmp_path)
    assert caught.value.number == number
    assert [signal.getsignal(number) for number in STOP_SIGNALS] == before
    assert [step for step, _ in step_checkpoints(tmp_path)] == [4]


# 9 is an epoch's last step; a validation follows on 15 and 30, a regular checkpoint on 20 and 30.
@pytest.mark.parametrize(
    "step", [8, 19, *(pytest.param(step, marks=pytest.mark.slow) for step in (3, 9, 14, 29))]
)
def test_a_run_stopped_at_any_step_continues_as_if_it_had_not_been(
    step: int, finished: Path, folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    with monkeypatch.context() as patch:
        _signal_at(step, signal.SIGTERM, patch)
        with pytest.raises(StoppedError, match=f"stopped at step {step + 1}"):
            run(tiny_experiment(folder), tmp_path)
    assert step_checkpoints(tmp_path)[-1][0] == step + 1
    run(tiny_experiment(folder), tmp_path)
    assert_same_end(tmp_path, finished)


@pytest.fixture
def _one_rank() -> Iterator[None]:
    distributed.init_process_group("gloo", store=HashStore(), rank=0, world_size=1)
    yield
    distributed.destroy_process_group()


@pytest.mark.usefixtures("_one_rank")
@pytest.mark.parametrize(("step_seconds", "votes", "latest"), [(0.025, 20, 22), (2.0, 400, 1)])
def test_ranks_vote_about_twice_a_second_or_after_each_slow_step(
    step_seconds: float, votes: int, latest: int, monkeypatch: pytest.MonkeyPatch
):
    """A signal in step 200 of 400 is known at most ``latest`` steps later."""
    now, cast = 0.0, 0
    all_reduce = distributed.all_reduce

    def count(*args: Any, **kwargs: Any) -> Any:
        nonlocal cast
        cast += 1
        return all_reduce(*args, **kwargs)

    monkeypatch.setattr(time, "monotonic", lambda: now)
    monkeypatch.setattr(distributed, "all_reduce", count)
    ranks = RankVote()
    known: list[int] = []
    for step in range(400):
        now += step_seconds
        received, up = ranks.exchange(received=step >= 200, up=False)
        assert not up
        if received:
            known.append(step)
    assert votes - 3 <= cast <= votes
    assert 200 < known[0] <= 200 + latest
