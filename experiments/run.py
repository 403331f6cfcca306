"""Run an experiment from its configuration to its result."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
import time
import traceback
import warnings
from contextlib import closing
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from lightning.pytorch import Trainer
from lightning.pytorch.strategies import DDPStrategy

from experiments.callbacks.checkpoints import (
    AtomicCheckpointIO,
    Checkpoints,
    can_continue,
    explain_restoring,
    keep_weights,
    set_aside,
)
from experiments.callbacks.metrics import Clock, LogMetrics, ShowTraining, quieten_lightning
from experiments.callbacks.stopping import StopEarly, StoppedError
from experiments.devices import (
    OutOfMemoryError,
    World,
    check_parts,
    default_device,
    explain_out_of_memory,
    find_world,
)
from experiments.display import Display
from experiments.evaluate.scoring import result_of_diverged, score_run
from experiments.records.checksums import SUMS_FILE, record_checksums, verify_files
from experiments.records.data import check_text, record_data, recorded_data
from experiments.records.experiment import Experiment, Limits, Log, load_experiment
from experiments.records.outputs import newest_sound, step_checkpoints
from experiments.records.ownership import (
    LOST_RANK,
    STARTER,
    check_configuration,
    check_not_removed,
    claim,
    forget_stray_rank,
    is_first_rank,
    is_of_first_rank,
    lock_directory,
)
from experiments.records.progress import (
    DIVERGED_MESSAGE,
    STOPPED_EXIT_CODE,
    RunState,
    stop_signals,
)
from experiments.records.result import Result, load_result, save_result
from experiments.records.source import record_imported, record_source
from experiments.tracking import Tracking
from transformer.config import Config
from transformer.data.module import TranslationDataModule
from transformer.decoding.incremental import check_cache
from transformer.errors import InputError
from transformer.files import make_directory
from transformer.formats import size
from transformer.kernels.threads import torch_threads
from transformer.training.checkpoints import check_trainings
from transformer.training.method import check_classes, make_module
from transformer.training.module import TransformerModule
from transformer.training.optimizer import NonFiniteError
from transformer.variant import classes_of

# What gloo and NCCL report when the other end of a connection is gone.
_OF_LOST_RANKS = ("closed by peer", "reset by peer", "pair closure", "remote process exited")
_NOTICING_SECONDS = 10.0
_SMALLER_MODEL = "choose a smaller d_model, d_ff, num_layers or vocabulary"
_BYTES_KEPT = 16  # for each weight: itself, its gradient and Adam's two moments, in fp32
_SMALLER_STEPS = (
    "take more gradient-accumulation steps (--accumulate), use more devices (--devices, for a "
    "table --devices-per-trial), or set a smaller tokens_per_batch"
)


def run(
    experiment: Experiment,
    directory: Path,
    *,
    devices: int | None = None,
    accumulate: int = 1,
    limits: Limits | None = None,
    fenced: bool = False,
    log: Log = "wandb",
    checkpoints: int = 1,
    keep_checkpoints: bool = True,
) -> Result | None:
    """Train, evaluate and write the result, continuing where an earlier run in ``directory`` ended.

    Of several ranks only the first scores; the others return None as soon as training is over.

    Args:
        devices: GPUs, or processes on the CPU if there is none; None means ``torchrun``'s, or one
        accumulate: gradient-accumulation steps: one device with eight of them takes the same
            optimizer steps as eight devices with one, up to rounding
        limits: where training ends sooner than configured
        fenced: another attempt may take the run over by renaming ``directory``, which must exist;
            it is not created again, so that whatever this process writes after that fails
        checkpoints: the least number of the last checkpoints to keep, even if fewer are averaged
        keep_checkpoints: False keeps, once a run is scored after its last configured step, only the
            weights of the checkpoints that were averaged

    Raises:
        NonFiniteError: if training diverged; the result says so too
    """
    limits = limits or Limits()
    forget_stray_rank()
    world = find_world(devices)
    check_parts(accumulate, world.size, experiment.config.data.tokens_per_batch)
    check_classes(experiment.config)  # before the directory is claimed for them
    if is_first_rank():
        check_configuration(directory, experiment)
        if not fenced:
            make_directory(directory)
    with (
        lock_directory(directory),
        torch_threads(experiment.config.training.threads),
        closing(Display(directory)) as display,
    ):
        if (result := _earlier_result(experiment, directory, limits)) is not None:
            return result
        data = _prepare(experiment, directory, display)
        with closing(Tracking(experiment, directory, log)) as tracking:
            session = _Session(world, accumulate, limits, checkpoints)
            trained = _train(experiment, directory, data, tracking, display, session)
            trainer, clock, diverged = trained
            if not trainer.is_global_zero:
                return None
            if diverged is None:
                result = score_run(experiment, directory, data.corpus, trainer, clock, display)
                training = experiment.config.training
                if not keep_checkpoints and result.steps == training.max_steps:
                    keep_weights(directory, training, checkpoints)
            else:
                step = diverged.step
                result = result_of_diverged(experiment, data.corpus, trainer, clock, step)
            check_not_removed(directory)
            record_imported(directory)
            result = record_checksums(directory, result)
            save_result(directory, result)
            if diverged is None:
                display.start(RunState.DONE)
            tracking.summarise(result)
        if diverged is not None:
            raise diverged
    return result


def _earlier_result(experiment: Experiment, directory: Path, limits: Limits) -> Result | None:
    """The result of a run that is at its end; None if something is left to do.

    Raises:
        NonFiniteError: if it ended because training diverged
    """
    result = load_result(directory)
    if result is None or not limits.reached(result, experiment.config.training.max_steps):
        return None
    check_text(directory, experiment.config.data.corpus)
    result = _record_place(experiment, directory, result)
    if (step := result.diverged_at) is not None:
        raise NonFiniteError(f"it ended at step {step}, and would do so again", step)
    return result


def _record_place(experiment: Experiment, directory: Path, result: Result) -> Result:
    """Record where the text of a finished run lies now, if it has moved."""
    found = load_experiment(directory)
    moved = replace(found, config=experiment.config)
    if moved == found or not is_first_rank():
        return result
    if problems := [f"{path} {problem}" for path, problem in verify_files(directory) if problem]:
        raise InputError("; ".join(problems))
    has_sums = (directory / SUMS_FILE).exists()
    claim(directory, moved)
    if has_sums:
        result = record_checksums(directory, result)
        save_result(directory, result)
    return result


def _prepare(experiment: Experiment, directory: Path, display: Display) -> TranslationDataModule:
    """Prepare the data and, unless it is refused, record it and the experiment in the directory."""
    display.start(RunState.PREPARE)
    data = TranslationDataModule(experiment.config, recorded_data(directory))
    corpus = data.corpus
    if is_first_rank():
        claim(directory, experiment)
        record_data(directory, corpus)
        record_source(directory, classes_of(experiment.config))
    return data


@dataclass(frozen=True, slots=True)
class _Session:
    """Where training runs and where it ends; the fields are arguments of :func:`run`."""

    world: World
    accumulate: int
    limits: Limits
    checkpoints: int


def _train(
    experiment: Experiment,
    directory: Path,
    data: TranslationDataModule,
    tracking: Tracking,
    display: Display,
    session: _Session,
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
    stopped, is_other = [128 + number for number in stop_signals()], is_of_first_rank()
    while is_of_first_rank() == is_other and all(
        process.poll() in (None, 0, *stopped) for process in started
    ):
        time.sleep(_NOTICING_SECONDS / 10)
    time.sleep(_NOTICING_SECONDS)  # in which this process fails too, unless it waits
    for process in started:
        process.kill()
    print(LOST_RANK, file=sys.stderr, flush=True)
    os._exit(1)


def _distributed(config: Config) -> DDPStrategy:
    # Gradients live in the buffers that are reduced, instead of being copied back and forth. In a
    # variant or a method a step may not use all weights, as when it skips a layer.
    is_variant = config.model.model is not None or config.training.method is not None
    if is_first_rank():
        os.environ[STARTER] = str(os.getpid())
    return _Ranks(gradient_as_bucket_view=True, find_unused_parameters=is_variant)


@dataclass(frozen=True, slots=True)
class Outcome:
    """How a run ended, and a line that says why; for a signal, its number and the last step too."""

    state: RunState
    message: str = ""
    signal: int | None = None
    step: int | None = None


def execute(experiment: Experiment, directory: Path, **settings: Any) -> Outcome:
    """Call :func:`run`, and turn every early end except bad input into an outcome."""
    try:
        run(experiment, directory, **settings)
    except StoppedError as error:
        return Outcome(RunState.STOPPED, str(error), error.number, error.step)
    except NonFiniteError as error:
        return Outcome(RunState.DIVERGED, f"{DIVERGED_MESSAGE}: {error}")
    except OutOfMemoryError as error:
        return Outcome(RunState.FAILED, str(error))
    except SystemExit as error:
        if isinstance(error.__context__, KeyboardInterrupt):  # which Lightning hides
            raise error.__context__ from None
        if error.code in (STOPPED_EXIT_CODE, *(128 + number for number in stop_signals())):
            raise
        return Outcome(RunState.FAILED, f"the model's code called exit({error.code!r})")
    except (RuntimeError, StopIteration) as error:
        stop = error if isinstance(error, StopIteration) else error.__cause__
        if isinstance(stop, StopIteration):
            place = traceback.extract_tb(stop.__traceback__)[-1]
            where = f"{place.filename}, line {place.lineno}"
            return Outcome(RunState.FAILED, f"{where}: the model's code raised StopIteration")
        if not any(words in str(error) for words in _OF_LOST_RANKS):
            raise
        # The first rank says it, if it is alive.
        return Outcome(RunState.FAILED, "" if is_of_first_rank() else LOST_RANK)
    except FileNotFoundError:
        check_not_removed(directory)
        raise
    return Outcome(RunState.DONE)
