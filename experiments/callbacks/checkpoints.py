"""Checkpoints: written whole or not at all, few kept, found again after any crash."""

from __future__ import annotations

import os
import pickle
import re
import warnings
import zipfile
import zlib
from pathlib import Path
from typing import Any

import lightning.pytorch as lightning
import torch
from lightning.fabric.plugins.io.torch_io import TorchCheckpointIO

from experiments.callbacks.clock import Clock
from experiments.callbacks.steps import completes_step
from experiments.run.files import unfinished
from experiments.run.ownership import refuse_removed
from transformer.config import TrainingConfig

_FOLDER = "checkpoints"
_BEST = "best.ckpt"
# Those that a stop or the end wrote between two of the regular interval say so.
_STEP_FILE = re.compile(r"step-(\d+)(-stop)?\.ckpt")
# Resuming falls back on the one before the newest, so fewer are never kept.
_FEWEST_KEPT = 2
# RuntimeError and ValueError: of zipfile where a damaged byte says that it is packed or encrypted.
_UNREADABLE = (
    OSError,
    EOFError,
    RuntimeError,
    ValueError,
    pickle.UnpicklingError,
    zipfile.BadZipFile,
    zlib.error,
)


class AtomicCheckpointIO(TorchCheckpointIO):
    """Writes beside the target, syncs, then renames: a crash leaves the old file or the new."""

    def save_checkpoint(
        self, checkpoint: dict[str, Any], path: str | Path, storage_options: Any | None = None
    ) -> None:
        """Write ``checkpoint`` to ``path``; nothing stays behind if that fails."""
        del storage_options
        target = Path(path)
        target.parent.mkdir(exist_ok=True)  # no parents: of a run taken over nothing is made anew
        temporary = unfinished(target)
        try:
            with temporary.open("wb") as file:
                torch.save(checkpoint, file)
                file.flush()
                os.fsync(file.fileno())
            temporary.replace(target)
        except BaseException as error:
            temporary.unlink(missing_ok=True)
            cause = error if isinstance(error, OSError) else error.__context__
            if isinstance(cause, OSError):  # a full disk, which torch words as a fault of its own
                raise OSError(cause.errno, cause.strerror, str(target)) from error
            raise


def step_checkpoints(directory: Path) -> list[tuple[int, Path]]:
    """The checkpoints of the run in ``directory`` by step, oldest first."""
    found = [(_STEP_FILE.fullmatch(p.name), p) for p in (directory / _FOLDER).glob("step-*.ckpt")]
    return sorted((int(match[1]), path) for match, path in found if match)


def has_checkpoints(directory: Path) -> bool:
    """Whether the run in ``directory`` has any, sound, damaged or put aside."""
    return any((directory / _FOLDER).glob("step-*.ckpt*"))


def _is_regular(path: Path) -> bool:
    return not path.stem.endswith("-stop")


def newest_sound(directory: Path) -> tuple[int, Path] | None:
    """The newest checkpoint that can be read, and its step; damaged newer ones are put aside, with
    a warning.
    """
    found = step_checkpoints(directory)
    while found:
        step, path = found.pop()
        if _is_sound(path):
            return step, path
        path.rename(path.with_name(f"{path.name}.damaged"))
        then = "going on from the one before it" if found else "starting over"
        warnings.warn(f"{path} is damaged: {then}", stacklevel=2)
    return None


def to_average(directory: Path, count: int) -> list[Path]:
    """The last ``count`` checkpoints of the regular interval, and the very last one.

    One that an interruption wrote between does not count: the average is the same however often
    a run was stopped.
    """
    sound = [path for _, path in step_checkpoints(directory) if _is_sound(path)]
    return [path for path in sound if _is_regular(path) or path == sound[-1]][-count:]


def damaged_checkpoints(directory: Path) -> list[Path]:
    """Those of the run in ``directory`` that cannot be read."""
    return [path for _, path in step_checkpoints(directory) if not _is_sound(path)]


def _is_sound(path: Path) -> bool:
    try:
        with zipfile.ZipFile(path) as archive:
            if archive.testzip() is not None:
                return False
        # What holds by its checksums may still have a list of contents that torch refuses.
        torch.load(path, map_location="cpu", weights_only=True, mmap=True)
        return True
    except _UNREADABLE:
        return False


class Checkpoints(lightning.Callback):
    """Writes a checkpoint at a fixed interval and at the end, and keeps the best on validation.

    The interval is so many steps, or so many minutes of training: then at the first step after
    each multiple of it, or, on several devices, at the first that is logged, as they must ask the
    first one's clock. Where a validation is due the checkpoint waits for it: Lightning does not
    make up for one that a kill cut off.
    """

    def __init__(self, directory: Path, config: TrainingConfig, clock: Clock) -> None:
        self._directory = directory
        self._config = config
        self._clock = clock
        self._keep = max(_FEWEST_KEPT, config.average_checkpoints, config.also_average or 0)
        self._best = float("inf")
        self._intervals = 0
        self._due = self._ending = False

    def end(self) -> None:
        """Write one at this step, whatever the interval: training ends here."""
        self._ending = True

    def state_dict(self) -> dict[str, Any]:
        """The best validation loss so far, and the intervals by the clock that are over."""
        return {"best": self._best, "intervals": self._intervals}

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Take up the state of a checkpoint."""
        self._best = state_dict["best"]
        self._intervals = state_dict.get("intervals", 0)

    def on_train_batch_end(self, trainer: lightning.Trainer, *args: Any, **kwargs: Any) -> None:
        """Save at the interval, or at the end."""
        if not completes_step(trainer):
            return
        self._due = self._is_due(trainer)
        if trainer.global_step % self._config.validate_every_steps != 0:
            self._save_if_due(trainer)

    def on_validation_end(self, trainer: lightning.Trainer, *args: Any, **kwargs: Any) -> None:
        """Save the best so far, and what has waited."""
        if trainer.global_step % self._config.validate_every_steps != 0:
            return  # out of turn, at an end by time
        loss = float(trainer.callback_metrics["valid_loss"])
        if loss < self._best:
            self._best = loss
            self._save(trainer, _BEST, weights_only=True)
        self._save_if_due(trainer)

    def _is_due(self, trainer: lightning.Trainer) -> bool:
        minutes, step = self._config.checkpoint_every_minutes, trainer.global_step
        if minutes is None:
            return step % self._config.checkpoint_every_steps == 0
        if trainer.world_size > 1 and step % self._config.log_every_steps != 0:
            return False
        intervals = int(self._clock.seconds / (60.0 * minutes))
        due, self._intervals = intervals > self._intervals, intervals
        return trainer.strategy.broadcast(due)

    def _save_if_due(self, trainer: lightning.Trainer) -> None:
        step = trainer.global_step
        if self._due or self._ending or trainer.should_stop or step == trainer.max_steps:
            name = f"step-{step:08d}.ckpt" if self._due else f"step-{step:08d}-stop.ckpt"
            self._save(trainer, name)
            if trainer.is_global_zero:
                self._prune()

    def _save(self, trainer: lightning.Trainer, name: str, *, weights_only: bool = False) -> None:
        refuse_removed(self._directory)
        trainer.save_checkpoint(self._directory / _FOLDER / name, weights_only=weights_only)

    def _prune(self) -> None:
        steps = step_checkpoints(self._directory)
        regular = [step for step, path in steps if _is_regular(path)]
        oldest = regular[-self._keep] if len(regular) >= self._keep else 0
        newest = steps[-1][0]
        for step, path in steps:
            if step < oldest or (step < newest and not _is_regular(path)):
                path.unlink()
