"""Write checkpoints atomically, and keep as many as needed."""

from __future__ import annotations

import traceback
import warnings
from collections.abc import Generator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import torch
from lightning.fabric.plugins.io.torch_io import TorchCheckpointIO
from lightning.pytorch import Callback, Trainer

from experiments.callbacks.metrics import Clock, completes_step
from experiments.records.experiment import CHECKPOINTS
from experiments.records.outputs import is_regular, step_checkpoints, to_average
from experiments.records.ownership import check_not_removed
from transformer.config import TrainingConfig
from transformer.errors import InputError, in_one_line
from transformer.files import rename, replacing

# Where Lightning keeps the moments of Adam, which take two thirds of a checkpoint.
_MOMENTS = "optimizer_states"
# Resuming falls back on the second newest if the newest is damaged.
_FEWEST_KEPT = 2
# The file and the functions in which Lightning reads a checkpoint.
_RESTORING = (
    "checkpoint_connector.py",
    ("resume_start", "_restore_modules_and_callbacks", "restore_training_state"),
)


class AtomicCheckpointIO(TorchCheckpointIO):
    """Writes to another name, syncs, then renames: a crash leaves the old file or the new one."""

    def save_checkpoint(
        self, checkpoint: dict[str, Any], path: str | Path, storage_options: Any | None = None
    ) -> None:
        target = Path(path)
        # No parents: the directory of a run that was taken over must not be created again.
        target.parent.mkdir(exist_ok=True)
        try:
            with replacing(target) as file:
                torch.save(checkpoint, file)
        except RuntimeError as error:  # torch's own, which hides a full disk or a second signal
            cause = error.__context__
            if isinstance(cause, OSError):
                raise OSError(cause.errno, cause.strerror, str(target)) from error
            if isinstance(cause, SystemExit):
                raise cause from None
            raise


@contextmanager
def explain_restoring(checkpoint: Path | None) -> Generator[None]:
    """Raise an InputError if Lightning cannot continue from what is in the checkpoint."""
    try:
        yield
    except (AttributeError, LookupError, RuntimeError, TypeError, ValueError) as error:
        frames = traceback.extract_tb(error.__traceback__)
        if not any(x.filename.endswith(_RESTORING[0]) and x.name in _RESTORING[1] for x in frames):
            raise
        reason = in_one_line(error)
        raise InputError(
            f"{checkpoint} cannot be continued from, although it is not damaged ({reason}): "
            "remove it, or restore the run's own"
        ) from error


def _scored(config: TrainingConfig) -> int:
    """How many of the last checkpoints are averaged to score a run."""
    return max(config.average_checkpoints, config.also_average or 1)


def keep_weights(directory: Path, config: TrainingConfig, kept: int = 1) -> None:
    """Keep only the weights of the checkpoints that are scored, and of at least the last ``kept``.

    Called once a run is scored after its last step, when Adam's moments are no longer needed; if
    the process is killed meanwhile, the same command scores the run again. If the disk is full, a
    warning says so and the remaining checkpoints stay whole.
    """
    try:
        scored = to_average(directory, max(_scored(config), kept))
        for path in scored:
            content = torch.load(path, map_location="cpu", weights_only=True, mmap=True)
            if content.get(_MOMENTS):
                AtomicCheckpointIO().save_checkpoint(content | {_MOMENTS: []}, path)
        for _, path in step_checkpoints(directory):
            if path not in scored:
                path.unlink()
    except OSError as error:
        warnings.warn(f"some checkpoints are kept whole: {error}", stacklevel=2)


def can_continue(checkpoint: Path) -> bool:
    """Whether training can continue from a checkpoint: not once :func:`keep_weights` has left only
    its weights.
    """
    try:
        content = torch.load(checkpoint, map_location="cpu", weights_only=True, mmap=True)
    except FileNotFoundError:  # another rank was first to set it aside
        return False
    return not isinstance(content, dict) or content.get(_MOMENTS) != []


def set_aside(directory: Path) -> None:
    """Rename the checkpoints of a run that must start over, as they have only weights."""
    for _, path in step_checkpoints(directory):
        with suppress(FileNotFoundError):
            rename(path, path.with_name(f"{path.name}.weights"))


class Checkpoints(Callback):
    """Writes checkpoints at a fixed interval and at the end; keeps as many as are averaged, and at
    least ``kept``.

    The interval is a number of steps or of minutes of training. With minutes, a checkpoint is
    written at the first step after each multiple; several devices go by the first one's clock and
    ask for it only at logged steps. A checkpoint waits for a validation that is due at its step.
    """

    def __init__(
        self, directory: Path, config: TrainingConfig, clock: Clock, kept: int = 1
    ) -> None:
        self._directory = directory
        self._config = config
        self._clock = clock
        self._keep = max(_FEWEST_KEPT, _scored(config), kept)
        self._intervals = 0
        self._due = self._ending = False

    def write_at_this_step(self) -> None:
        """Write a checkpoint at this step, because training ends here."""
        self._ending = True

    def state_dict(self) -> dict[str, Any]:
        return {"intervals": self._intervals}

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        self._intervals = int(state_dict["intervals"])

    def on_train_batch_end(self, trainer: Trainer, *args: Any, **kwargs: Any) -> None:
        if not completes_step(trainer):
            return
        self._due = self._is_due(trainer)
        if trainer.global_step % self._config.validate_every_steps != 0:
            self._save_if_due(trainer)

    def on_validation_end(self, trainer: Trainer, *args: Any, **kwargs: Any) -> None:
        if trainer.global_step % self._config.validate_every_steps == 0:
            self._save_if_due(trainer)  # but not after the extra validation when time is up

    def _is_due(self, trainer: Trainer) -> bool:
        minutes, step = self._config.checkpoint_every_minutes, trainer.global_step
        if minutes is None:
            return step % self._config.checkpoint_every_steps == 0
        if trainer.world_size > 1 and step % self._config.log_every_steps != 0:
            return False
        intervals = int(self._clock.seconds / (60.0 * minutes))
        due, self._intervals = intervals > self._intervals, intervals
        return trainer.strategy.broadcast(due)

    def _save_if_due(self, trainer: Trainer) -> None:
        step = trainer.global_step
        if self._due or self._ending or trainer.should_stop or step == trainer.max_steps:
            name = f"step-{step:08d}.ckpt" if self._due else f"step-{step:08d}-stop.ckpt"
            check_not_removed(self._directory)
            trainer.save_checkpoint(self._directory / CHECKPOINTS / name)
            if trainer.is_global_zero:
                self._remove_old()

    def _remove_old(self) -> None:
        steps = step_checkpoints(self._directory)
        regular = [step for step, path in steps if is_regular(path)]
        oldest = regular[-self._keep] if len(regular) >= self._keep else 0
        newest = steps[-1][0]
        for step, path in steps:
            if step < oldest or (step < newest and not is_regular(path)):
                path.unlink()
