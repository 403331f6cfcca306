"""Damaged checkpoints are noticed and skipped; the right ones are averaged."""

from __future__ import annotations

import errno
import os
from pathlib import Path
from random import Random
from typing import Any

import lightning.pytorch as lightning
import pytest
import torch

from experiments.callbacks.checkpoints import AtomicCheckpointIO
from experiments.callbacks.metrics import Clock
from experiments.records.checkpoints import newest_sound, step_checkpoints, to_average
from experiments.records.experiment import Limits
from experiments.run import run
from tests.experiments.samples import (
    assert_same_end,
    copy_of,
    forget_result,
    tiny_experiment,
)


def _flip(path: Path) -> None:
    content = bytearray(path.read_bytes())
    content[len(content) // 2] ^= 1
    path.write_bytes(content)


@pytest.fixture
def unfinished(finished: Path, tmp_path: Path) -> Path:
    """A run that was killed after its last step, with checkpoints of the steps 30 and 40."""
    directory = copy_of(finished, tmp_path / "run")
    forget_result(directory)
    return directory


@pytest.mark.parametrize("damaged", [1, 2])
def test_damaged_newest_checkpoints_cost_only_their_steps(
    damaged: int, unfinished: Path, finished: Path, folder: Path
):
    for _, path in step_checkpoints(unfinished)[-damaged:]:
        _flip(path)
    with pytest.warns(UserWarning) as warned:
        run(tiny_experiment(folder), unfinished)
    endings = [str(warning.message).partition(".ckpt is damaged: ")[2] for warning in warned]
    assert endings == ["continuing from the one before it", "starting over"][:damaged]
    assert [step for step, _ in step_checkpoints(unfinished)] == [30, 40]
    assert_same_end(unfinished, finished)


def test_damage_is_noticed(unfinished: Path):
    """Unless it has no meaning; and so is what torch reads only with ``weights_only=False``."""
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
    torch.save({"path": newest}, newest)
    with pytest.warns(UserWarning, match="00000040.ckpt is damaged: continuing from"):
        assert newest_sound(unfinished) == (30, older)


def _touch(directory: Path, *steps: int, stops: tuple[int, ...] = ()) -> None:
    (directory / "checkpoints").mkdir()
    for step in steps:
        stop = "-stop" if step in stops else ""
        torch.save({}, directory / "checkpoints" / f"step-{step:08d}{stop}.ckpt")


@pytest.mark.parametrize(
    ("present", "stops", "count", "chosen"),
    [
        ([10, 20, 30], (), 2, [20, 30]),
        ([10, 20, 30], (), 5, [10, 20, 30]),
        ([10, 17, 20, 30], (17,), 3, [10, 20, 30]),
        ([20, 30, 33], (33,), 2, [30, 33]),  # the end
        ([], (), 2, []),
    ],
)
def test_the_average_is_of_the_last_regular_checkpoints(
    present: list[int], stops: tuple[int, ...], count: int, chosen: list[int], tmp_path: Path
):
    _touch(tmp_path, *present, stops=stops)
    by_step = dict(step_checkpoints(tmp_path))
    assert to_average(tmp_path, count) == [by_step[step] for step in chosen]


class _Clock(Clock):
    """A clock by which each step takes 40 seconds."""

    _steps = 0

    @property
    def seconds(self) -> float:
        return 40.0 * self._steps

    def on_train_start(self, trainer: lightning.Trainer, *args: Any, **kwargs: Any) -> None:
        self._steps = trainer.global_step

    def on_train_batch_end(self, trainer: lightning.Trainer, *args: Any, **kwargs: Any) -> None:
        self._steps = trainer.global_step


def test_checkpoints_by_the_clock_keep_their_interval_over_stops(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    """Every five minutes: after steps 8, 15, 23, 30 and 38; on 15 and 30 after a validation."""
    monkeypatch.setattr("experiments.run.Clock", _Clock)
    experiment = tiny_experiment(folder, ("valid",), checkpoint_every_minutes=5)

    def names_after(steps: int) -> list[str]:
        run(experiment, tmp_path, limits=Limits(max_steps=steps))
        return [path.stem.removeprefix("step-000000") for _, path in step_checkpoints(tmp_path)]

    assert names_after(13) == ["08", "13-stop"]
    assert names_after(14) == ["08", "14-stop"]
    assert names_after(40) == ["30", "38", "40-stop"]
    assert [path.stem[-2:] for path in to_average(tmp_path, 9)] == ["30", "38", "op"]


def test_damaged_checkpoints_are_not_averaged_and_other_files_are_left_alone(tmp_path: Path):
    _touch(tmp_path, 10, 20, 30)
    _flip(tmp_path / "checkpoints" / "step-00000020.ckpt")
    (tmp_path / "checkpoints" / ".step-00000040.ckpt.part").touch()
    (tmp_path / "checkpoints" / "step-of-mine.ckpt").touch()
    assert [step for step, _ in step_checkpoints(tmp_path)] == [10, 20, 30]
    assert [path.stem for path in to_average(tmp_path, 3)] == ["step-00000010", "step-00000030"]


def test_a_checkpoint_that_cannot_be_written_leaves_the_old_one_and_nothing_else(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    target = tmp_path / "step-00000010.ckpt"
    AtomicCheckpointIO().save_checkpoint({"step": torch.tensor(1)}, target)

    def full(_: int) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(OSError, match="No space left on device") as caught:
        AtomicCheckpointIO().save_checkpoint({"step": torch.tensor(2)}, target)
    assert caught.value.errno == errno.ENOSPC
    assert caught.value.filename == str(target)
    assert list(tmp_path.iterdir()) == [target]
    assert torch.load(target, weights_only=True) == {"step": torch.tensor(1)}
