"""A signal ends a run after a checkpoint; the handlers are restored."""

from __future__ import annotations

import os
import signal
from pathlib import Path

import lightning.pytorch as lightning
import pytest
import torch.distributed as distributed
from torch._C._distributed_c10d import HashStore

from experiments.callbacks.metrics import ShowTraining
from experiments.callbacks.stopping import RankVote, StoppedError
from experiments.records.outputs import step_checkpoints
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


def test_what_a_rank_says_is_known_to_all_one_step_later():
    distributed.init_process_group("gloo", store=HashStore(), rank=0, world_size=1)
    try:
        ranks = RankVote()
        said = [(False, False), (True, False), (True, True), (False, False)]
        assert [ranks.exchange(*each) for each in said] == [(False, False), *said[:-1]]
    finally:
        distributed.destroy_process_group()
