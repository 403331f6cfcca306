"""Runs end as if they had not been killed, stopped or short of room, nor their files damaged."""

from __future__ import annotations

import errno
import io
import os
import shutil
import signal
from contextlib import nullcontext
from pathlib import Path
from random import Random
from typing import Any

import lightning.pytorch as lightning
import pytest
import torch
import torch.distributed as distributed
from torch._C._distributed_c10d import HashStore

from experiments.callbacks import checkpoints
from experiments.callbacks.checkpoints import AtomicCheckpointIO
from experiments.callbacks.metrics import Clock, ShowTraining
from experiments.callbacks.stopping import RankVote, StoppedError
from experiments.evaluate.trained import load_trained
from experiments.records.experiment import Experiment, Limits, load_experiment
from experiments.records.outputs import newest_sound, read_metrics, step_checkpoints, to_average
from experiments.records.progress import BLOCKED_EXIT_CODE, STOP_SIGNALS, STOPPED_EXIT_CODE
from experiments.records.result import load_result
from experiments.run import run
from tests.experiments.conftest import Command, Start
from tests.experiments.samples import (
    assert_same_end,
    last_checkpoint,
    outcome,
    result_of,
    tiny_experiment,
)
from tests.samples import flip_a_bit, new_run
from transformer.errors import InputError
from transformer.files import rename

_KILLS = (signal.SIGKILL, signal.SIGTERM, signal.SIGINT)


def _steps(directory: Path) -> int:
    """The last step that was logged."""
    return max((int(line[0]) for line in read_metrics(directory)), default=0)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("times", "seed"), [(2, 0), *(pytest.param(7, seed, marks=pytest.mark.slow) for seed in (1, 2))]
)
def test_a_run_killed_repeatedly_ends_as_an_undisturbed_one(
    times: int, seed: int, finished: Path, experiment: Experiment, begin: Start, tmp_path: Path
):
    directory, random, late = tmp_path / "run", Random(seed), 0
    words = ("ablations.runs.entry", directory, "1", "none", "1", "whole")
    new_run(directory, experiment)
    for number in range(times):  # at random steps
        stop = _steps(directory) + random.randint(1, 20 // times)
        running = begin(*words, stdin=None)
        running.wait_until(lambda stop=stop: _steps(directory) >= stop)
        how = _KILLS[(seed + number) % len(_KILLS)]
        ended = running.finish(how)
        late += ended.code == 0
        assert ended.code in (0, -how if how == signal.SIGKILL else STOPPED_EXIT_CODE), ended
    assert late < times
    ended = begin(*words, stdin=None).finish()
    assert ended.code == 0, ended
    assert_same_end(directory, finished)


def _signal_at(step: int, number: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Send a signal in the middle of a step, and again, as SLURM and then the driver do."""
    original = ShowTraining.on_train_batch_end

    def show(self: ShowTraining, trainer: lightning.Trainer, *args: object) -> None:
        if trainer.global_step == step:
            os.kill(os.getpid(), number)
            os.kill(os.getpid(), number)
        original(self, trainer, *args)  # pyright: ignore[reportArgumentType]

    monkeypatch.setattr(ShowTraining, "on_train_batch_end", show)


# 9 is an epoch's last step; a validation follows on 15 and 30, a regular checkpoint on 20 and 30.
@pytest.mark.parametrize(
    ("step", "number"),
    [
        (8, signal.SIGINT),
        (19, signal.SIGTERM),
        pytest.param(3, signal.SIGHUP, marks=pytest.mark.slow),
        pytest.param(14, signal.SIGUSR1, marks=pytest.mark.slow),
        pytest.param(9, signal.SIGTERM, marks=pytest.mark.slow),
        pytest.param(29, signal.SIGTERM, marks=pytest.mark.slow),
    ],
)
def test_a_signal_stops_a_run_after_a_checkpoint_and_it_continues_as_if_it_had_not(
    step: int,
    number: signal.Signals,
    finished: Path,
    experiment: Experiment,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
):
    before = [signal.getsignal(number) for number in STOP_SIGNALS]
    with monkeypatch.context() as patch:
        _signal_at(step, number, patch)
        with pytest.raises(StoppedError, match=f"stopped at step {step + 1}") as caught:
            run(experiment, tmp_path)
    assert caught.value.number == number
    assert [signal.getsignal(number) for number in STOP_SIGNALS] == before
    assert step_checkpoints(tmp_path)[-1][0] == step + 1
    run(experiment, tmp_path)
    assert_same_end(tmp_path, finished)


def test_a_run_restores_the_handlers_and_leaves_sighup_ignored_under_nohup(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    signal.signal(signal.SIGHUP, signal.SIG_IGN)
    before = [signal.getsignal(number) for number in STOP_SIGNALS]
    _signal_at(1, signal.SIGHUP, monkeypatch)
    run(tiny_experiment(folder, max_steps=2), tmp_path)
    assert [signal.getsignal(number) for number in STOP_SIGNALS] == before


def test_what_a_rank_says_is_known_to_all_one_step_later():
    distributed.init_process_group("gloo", store=HashStore(), rank=0, world_size=1)
    try:
        ranks = RankVote()
        said = [(False, False), (True, False), (True, True), (False, False)]
        assert [ranks.exchange(*each) for each in said] == [(False, False), *said[:-1]]
    finally:
        distributed.destroy_process_group()


@pytest.mark.parametrize("limits", [Limits(), Limits(max_steps=5)])
def test_a_finished_run_started_again_does_nothing_and_is_only_evaluated_without_a_result(
    limits: Limits, copy: Path, finished: Path, experiment: Experiment
):
    written = {path: path.stat().st_mtime_ns for path in copy.rglob("[!.]*.*")}
    before = result_of(experiment, copy, limits=limits)
    assert before == load_result(finished)
    assert {path: path.stat().st_mtime_ns for path in written} == written
    (copy / "result.json").unlink()
    after = result_of(experiment, copy, limits=limits)
    assert outcome(copy) == outcome(finished)
    # The checkpoint was written just before the clock stopped; evaluation is no training.
    assert before.train_seconds / 2 < after.train_seconds <= before.train_seconds


@pytest.mark.slow
def test_a_run_continues_where_its_text_has_moved_but_not_on_other_text(
    finished: Path, experiment: Experiment, folder: Path, tmp_path: Path
):
    directory, moved = tmp_path / "run", tmp_path / "elsewhere" / folder.name
    run(experiment, directory, limits=Limits(max_steps=13))
    shutil.copytree(folder, moved)
    there = tiny_experiment(moved)
    assert there != experiment
    (moved / "train.de").write_bytes((folder / "valid.de").read_bytes())
    with pytest.raises(InputError, match=r"train\.de changed"):
        run(there, directory)
    shutil.copy(folder / "train.de", moved)
    run(there, directory)
    assert outcome(directory) == outcome(finished)
    assert load_experiment(directory) == there


@pytest.mark.slow
def test_a_run_ends_when_its_minutes_are_up_and_is_scored(folder: Path, tmp_path: Path):
    experiment = tiny_experiment(folder, max_steps=100_000)
    limits = Limits(max_minutes=0.5 / 60)
    result = result_of(experiment, tmp_path, limits=limits)
    assert 0 < result.steps < 100_000
    assert result.train_seconds >= 0.5
    assert run(experiment, tmp_path, limits=limits) == result
    seconds = result.train_seconds + 0.5
    longer = result_of(experiment, tmp_path, limits=Limits(max_minutes=seconds / 60))
    assert longer.steps > result.steps
    assert longer.train_seconds >= seconds


def _course(directory: Path) -> tuple[list[str], list[int], int]:
    """The steps of the metrics, those of the checkpoints, and the epoch."""
    metrics = [line[0] for line in read_metrics(directory)]
    steps = [step for step, _ in step_checkpoints(directory)]
    return metrics, steps, last_checkpoint(directory)["epoch"]


@pytest.mark.slow
def test_a_run_may_continue_with_another_number_of_parts(
    finished: Path, experiment: Experiment, tmp_path: Path
):
    """Steps, epochs, validations and checkpoints stay where they were."""
    run(experiment, tmp_path, accumulate=3, limits=Limits(max_steps=13))
    result = result_of(experiment, tmp_path, accumulate=2)
    expected = load_result(finished)
    assert expected is not None and result.source_tokens == expected.source_tokens
    assert _course(tmp_path) == _course(finished)


@pytest.mark.slow
def test_a_run_ended_by_max_steps_and_then_by_a_full_disk_continues_as_if_it_had_not_been(
    finished: Path, experiment: Experiment, command: Command, tmp_path: Path
):
    directory = tmp_path / "run"
    first = result_of(experiment, directory, limits=Limits(max_steps=13))
    assert first.steps == 13 and first == load_result(directory)
    _, newest = step_checkpoints(directory)[-1]
    words, size = (
        ("ablations.runs.entry", directory, "1", "none", "1", "whole"),
        newest.stat().st_size,
    )
    ended = command(*words, stdin=None, largest_file=size // 2)
    assert ended.code == BLOCKED_EXIT_CODE
    assert ended.lines[-1] == f"[Errno 27] File too large: '{newest.with_stem('step-00000020')}'"
    assert "Traceback" not in ended.stderr
    assert [step for step, _ in step_checkpoints(directory)] == [10, 13]
    assert not [path for path in directory.rglob("*") if ".part" in path.name]
    run(experiment, directory)
    assert_same_end(directory, finished)


@pytest.mark.parametrize("cause", [SystemExit(143), OSError(errno.ENOSPC, "No space left")])
def test_a_signal_or_a_full_disk_while_torch_writes_is_no_crash(
    cause: BaseException, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    class Interrupted(io.BytesIO):
        def write(self, buffer: Any, /) -> int:
            if self.tell():
                raise cause
            return super().write(buffer)

    monkeypatch.setattr(checkpoints, "replacing", lambda _: nullcontext(Interrupted()))
    with pytest.raises(type(cause), match=r"143|No space left"):
        AtomicCheckpointIO().save_checkpoint({"step": torch.zeros(7)}, tmp_path / "x.ckpt")


@pytest.mark.slow
@pytest.mark.parametrize("damaged", [1, 2])
def test_damaged_newest_checkpoints_cost_only_their_steps(
    damaged: int, unfinished: Path, finished: Path, experiment: Experiment
):
    for _, path in step_checkpoints(unfinished)[-damaged:]:
        flip_a_bit(path, path.stat().st_size // 2)
    with pytest.warns(UserWarning) as warned:
        run(experiment, unfinished)
    endings = [str(warning.message).partition(".ckpt is damaged: ")[2] for warning in warned]
    assert endings == ["continuing from the one before it", "starting over"][:damaged]
    assert len(list(unfinished.glob("checkpoints/*.ckpt.damaged"))) == damaged
    assert [step for step, _ in step_checkpoints(unfinished)] == [30, 40]
    assert_same_end(unfinished, finished)


def test_several_ranks_find_the_same_damage(unfinished: Path, monkeypatch: pytest.MonkeyPatch):
    (_, older), (_, newest) = step_checkpoints(unfinished)
    flip_a_bit(newest, newest.stat().st_size // 2)

    def be_second(path: Path, target: Path) -> None:
        rename(path, target)
        rename(path, target)

    monkeypatch.setattr("experiments.records.outputs.rename", be_second)
    with pytest.warns(UserWarning, match="is damaged: continuing from the one before it"):
        assert newest_sound(unfinished) == (30, older)


@pytest.mark.parametrize(
    "error", [OSError(errno.ESTALE, "Stale file handle"), RuntimeError("Cannot allocate memory")]
)
def test_a_checkpoint_that_cannot_be_read_now_is_not_damaged(
    error: Exception, unfinished: Path, monkeypatch: pytest.MonkeyPatch
):
    before = step_checkpoints(unfinished)

    def refuse(*_: object, **_more: object) -> None:
        raise error

    monkeypatch.setattr(torch, "load", refuse)
    with pytest.raises(type(error)):
        newest_sound(unfinished)
    assert step_checkpoints(unfinished) == before


def test_damage_is_noticed(unfinished: Path):
    """Unless it has no meaning."""
    random = Random(1)
    (_, older), (_, newest) = step_checkpoints(unfinished)
    content, expected = newest.read_bytes(), torch.load(newest, weights_only=True)["state_dict"]
    contents = content.index(b"PK\x01\x02")  # of the archive, the easiest part to break
    for number in range(50):
        flipped = bytearray(content)
        where = random.randrange(contents if number % 2 else 0, len(content))
        flipped[where] ^= 1 << random.randrange(8)
        newest.write_bytes(flipped)
        try:
            found = newest_sound(unfinished)
        except UserWarning:  # warnings are errors here
            found = (30, older)
        if found == (40, newest):
            loaded = torch.load(newest, weights_only=True)["state_dict"]
            assert all(torch.equal(expected[name], loaded[name]) for name in expected)


def test_a_whole_checkpoint_that_torch_refuses_is_no_damage(
    unfinished: Path, experiment: Experiment, monkeypatch: pytest.MonkeyPatch
):
    before = step_checkpoints(unfinished)
    newest = before[-1][1]
    content = torch.load(newest, weights_only=True)
    said = rf"{newest} is not damaged, but torch \S+ does not read it \("
    torch.save(content | {"path": newest}, newest)  # as another version may write it
    with pytest.raises(InputError, match=rf"{said}Unsupported global: GLOBAL pathlib\.\w+ was not"):
        run(experiment, unfinished)
    assert (unfinished / "SHA256SUMS").is_file()
    with pytest.raises(InputError, match=said):
        load_trained(unfinished)
    torch.save(content, newest)
    version = "[enforce fail at inline_container.cc:230] . Attempted to read a file of version 99"

    def refuse(*_: object, **_more: object) -> None:
        raise RuntimeError(version)

    monkeypatch.setattr(torch, "load", refuse)
    with pytest.raises(InputError, match=said):
        newest_sound(unfinished)
    assert step_checkpoints(unfinished) == before


@pytest.mark.parametrize(
    ("present", "count", "chosen"),
    [
        ("10 20 30", 2, "20 30"),
        ("10 20 30", 5, "10 20 30"),
        ("10 17-stop 20 30", 3, "10 20 30"),
        ("20 30 33-stop", 2, "30 33-stop"),  # the end
        ("10 20-damaged 30", 3, "10 30"),
        ("", 2, ""),
    ],
)
def test_the_average_is_of_the_last_sound_regular_checkpoints(
    present: str, count: int, chosen: str, tmp_path: Path
):
    folder = tmp_path / "checkpoints"
    folder.mkdir()
    for other in (".step-00000040.ckpt.part", "step-of-mine.ckpt"):
        (folder / other).touch()
    for name in present.split():
        path = folder / f"step-000000{name.removesuffix('-damaged')}.ckpt"
        torch.save({}, path)
        if "damaged" in name:
            flip_a_bit(path, path.stat().st_size // 2)
    found = [path.stem.removeprefix("step-000000") for path in to_average(tmp_path, count)]
    assert found == chosen.split()


class _Clock(Clock):
    """A clock by which each step takes 40 seconds."""

    _steps = 0

    @property
    def seconds(self) -> float:
        return 40.0 * self._steps

    def on_train_batch_end(self, trainer: lightning.Trainer, *args: Any, **kwargs: Any) -> None:
        self._steps = trainer.global_step
        self.target_tokens = self._steps

    on_train_start = on_train_batch_end


@pytest.mark.slow
def test_checkpoints_by_the_clock_keep_their_interval_over_stops(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    """Every five minutes: after steps 8, 15, 23, 30 and 38; on 15 and 30 after a validation."""
    monkeypatch.setattr("experiments.train.Clock", _Clock)
    experiment = tiny_experiment(folder, ("valid",), checkpoint_every_minutes=5)

    def names_after(steps: int) -> list[str]:
        run(experiment, tmp_path, limits=Limits(max_steps=steps))
        return [path.stem.removeprefix("step-000000") for _, path in step_checkpoints(tmp_path)]

    assert names_after(13) == ["08", "13-stop"]
    assert names_after(14) == ["08", "14-stop"]
    assert names_after(40) == ["30", "38", "40-stop"]
    assert [path.stem[-2:] for path in to_average(tmp_path, 9)] == ["30", "38", "op"]


def test_a_checkpoint_that_cannot_be_written_leaves_the_old_one_and_nothing_else(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    target = tmp_path / "step-00000010.ckpt"
    AtomicCheckpointIO().save_checkpoint({"step": torch.tensor(1)}, target)

    def full(_: int) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(OSError, match=f"No space left on device: '{target}'"):
        AtomicCheckpointIO().save_checkpoint({"step": torch.tensor(2)}, target)
    assert list(tmp_path.iterdir()) == [target]
    assert torch.load(target, weights_only=True) == {"step": torch.tensor(1)}
