"""Train a run with Lightning, from its newest checkpoint on."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
import time
import warnings
from dataclasses import dataclass
from pathlib import Path

from lightning.pytorch import Trainer
from lightning.pytorch.strategies import DDPStrategy

from experiments.callbacks.checkpoints import (
    AtomicCheckpointIO,
    Checkpoints,
    can_continue,
    explain_restoring,
    set_aside,
)
from experiments.callbacks.metrics import Clock, LogMetrics, ShowTraining, quieten_lightning
from experiments.callbacks.stopping import StopEarly
from experiments.devices import World, default_device, explain_out_of_memory
from experiments.display import Display
from experiments.records.checksums import SUMS_FILE
from experiments.records.experiment import Experiment, Limits
from experiments.records.outputs import newest_sound, step_checkpoints
from experiments.records.ownership import LOST_RANK, STARTER, is_first_rank, is_of_first_rank
from experiments.records.progress import RunState, stop_codes
from experiments.records.source import record_imported
from experiments.tracking import Tracking
from transformer.config import Config
from transformer.data.module import TranslationDataModule
from transformer.decoding.incremental import check_cache
from transformer.errors import InputError
from transformer.formats import size
from transformer.training.checkpoints import check_trainings
from transformer.training.method import make_module
from transformer.training.module import TransformerModule
from transformer.training.optimizer import NonFiniteError

_NOTICING_SECONDS = 10.0
_SMALLER_MODEL = "choose a smaller d_model, d_ff, num_layers or vocabulary"
_BYTES_KEPT = 16  # for each weight: itself, its gradient and Adam's two moments, in fp32
_SMALLER_STEPS = (
    "take more gradient-accumulation steps (--accumulate), use more devices (--devices, for a "
    "table --devices-per-trial), or set a smaller tokens_per_batch"
)


@dataclass(frozen=True, slots=True)
class Session:
    """Where training runs and ends.

    ``world`` has the processes; the others are arguments of :func:`experiments.run.run`.
    """

    world: World
    accumulate: int
    limits: Limits
    checkpoints: int


def train(
    experiment: Experiment,
    directory: Path,
    data: TranslationDataModule,
    tracking: Tracking,
    display: Display,
    session: Session,
) -> tuple[Trainer, Clock, NonFiniteError | None]:
    """Train to the end; :mod:`experiments.callbacks` says why Lightning's own parts are off.

    Returns:
        The trainer, the clock, and the error if training diverged.
    """
    quieten_lightning()
    config = experiment.config.training
    max_steps = session.limits.steps(config.max_steps)
    step, checkpoint = _find_start(experiment, directory, max_steps)
    (directory / SUMS_FILE).unlink(missing_ok=True)  # from here on its files change
    display.start(RunState.TRAIN, max_steps, step)
    clock = Clock()
    checkpoints = Checkpoints(directory, config, clock, session.checkpoints)
    trainer = Trainer(
        accelerator=default_device().type,
        devices=session.world.local,
        num_nodes=session.world.nodes,
        strategy=_distributed(experiment.config) if session.world.size > 1 else "auto",
        max_steps=max_steps,
        max_epochs=-1,
        accumulate_grad_batches=session.accumulate,
        val_check_interval=config.validate_every_steps * session.accumulate,  # in micro-batches
        check_val_every_n_epoch=None,
        num_sanity_val_steps=0,
        log_every_n_steps=config.log_every_steps,
        logger=tracking.loggers(step),
        callbacks=[
            clock,
            StopEarly(clock, checkpoints, session.limits.seconds),
            LogMetrics(directory, clock, every=config.log_every_steps, resumed_step=step),
            checkpoints,
            ShowTraining(display, clock, session.limits.seconds),
        ],
        plugins=[AtomicCheckpointIO()],
        default_root_dir=directory,
        enable_checkpointing=False,
        enable_progress_bar=False,
        enable_model_summary=False,
        use_distributed_sampler=False,
    )
    if checkpoint is not None:
        display.say(f"resuming at step {step} of {max_steps}")
    module = _make_module(experiment)
    if is_first_rank():
        record_imported(directory)
    diverged = _fit(trainer, module, data, checkpoint)
    if checkpoint is not None and not clock.target_tokens:
        raise InputError(f"{checkpoint} does not say what was trained before: remove it")
    return trainer, clock, diverged


def _fit(
    trainer: Trainer,
    module: TransformerModule,
    data: TranslationDataModule,
    checkpoint: Path | None,
) -> NonFiniteError | None:
    kept = size(_BYTES_KEPT * sum(weight.numel() for weight in module.parameters()))
    with (
        explain_restoring(checkpoint),
        explain_out_of_memory(
            lambda: f"in step {trainer.global_step + 1} of training",
            f"{_SMALLER_STEPS}; weights, gradients and moments alone take {kept} of a device",
        ),
    ):
        try:
            trainer.fit(module, datamodule=data, ckpt_path=checkpoint, weights_only=True)
        except NonFiniteError as error:
            return error
    return None


def _find_start(experiment: Experiment, directory: Path, max_steps: int) -> tuple[int, Path | None]:
    """The step and the checkpoint at which training begins; 0 and None for a new run."""
    with explain_out_of_memory(lambda: "reading the last checkpoint", "give the run more memory"):
        step, checkpoint = newest_sound(directory) or (0, None)
        # Check all of them: even those that training does not continue from may be averaged.
        check_trainings((path for _, path in step_checkpoints(directory)), experiment.config)
        if checkpoint is None or step >= max_steps or can_continue(checkpoint):
            return step, checkpoint
    # A run loses its last checkpoint to a damaged disk after the others were reduced to weights.
    warnings.warn(f"{checkpoint} has only the weights: starting over", stacklevel=2)
    set_aside(directory)
    return 0, None


def _make_module(experiment: Experiment) -> TransformerModule:
    with explain_out_of_memory(lambda: "making the model", _SMALLER_MODEL):
        module = make_module(experiment.config)
        if experiment.config.model.model is not None:
            check_cache(module.model)  # rather than after hours of training
    return module


class _Ranks(DDPStrategy):
    """Ends the run with one line when one of its processes is killed, even if the others are
    waiting for it; Lightning would kill them silently.
    """

    def setup_environment(self) -> None:
        started = getattr(self.launcher, "procs", [])
        threading.Thread(target=_watch, args=([*started],), daemon=True).start()
        started.clear()  # Lightning watches this list
        if is_first_rank():
            os.environ.pop(STARTER, None)  # the others have it
        super().setup_environment()


def _watch(started: list[subprocess.Popen[bytes]]) -> None:
    """Wait until the first rank, or one that it started, is gone, and end this process."""
    not_lost, is_other = [None, 0, *stop_codes()], is_of_first_rank()
    while is_of_first_rank() == is_other and all(rank.poll() in not_lost for rank in started):
        time.sleep(_NOTICING_SECONDS / 10)
    time.sleep(_NOTICING_SECONDS)  # in which this process fails too, unless it waits
    for process in started:
        process.kill()
    print(LOST_RANK, file=sys.stderr, flush=True)
    os._exit(1)


def _distributed(config: Config) -> DDPStrategy:
    # Gradients live in the buffers that are reduced, instead of being copied back and forth. With a
    # variant or a method, a step can leave weights unused, as when it skips a layer.
    is_variant = config.model.model is not None or config.training.method is not None
    if is_first_rank():
        os.environ[STARTER] = str(os.getpid())
    return _Ranks(gradient_as_bucket_view=True, find_unused_parameters=is_variant)
