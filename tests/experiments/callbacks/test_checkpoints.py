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
from experiments.records.experiment import Limits
from experiments.records.outputs import newest_sound, step_checkpoints, to_average
from experiments.run import run
from tests.experiments.samples import assert_same_end, tiny_experiment
from tests.samples import flip_a_bit


@pytest.mark.parametrize("damaged", [1, 2])
def test_damaged_newest_checkpoints_cost_only_their_steps(
    damaged: int, unfinished: Path, finished: Path, folder: Path
):
    for _, path in step_checkpoints(unfinished)[-damaged:]:
        flip_a_bit(path, path.stat().st_size // 2)
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
