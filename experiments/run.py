"""Run an experiment from its configuration to its result."""

from __future__ import annotations

import traceback
from contextlib import closing
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from lightning.pytorch import Trainer

from experiments.callbacks.checkpoints import keep_weights
from experiments.callbacks.metrics import Clock
from experiments.callbacks.stopping import StoppedError
from experiments.devices import OutOfMemoryError, check_parts, find_world
from experiments.display import Display
from experiments.evaluate.scoring import result_of_diverged, score_run
from experiments.records.checksums import SUMS_FILE, check_all_files, record_checksums
from experiments.records.data import check_text, record_data, recorded_data
from experiments.records.experiment import Experiment, Limits, Log, load_experiment
from experiments.records.ownership import (
    LOST_RANK,
    check_configuration,
    check_not_removed,
    claim,
    forget_stray_rank,
    is_first_rank,
    is_of_first_rank,
    lock_directory,
)
from experiments.records.progress import DIVERGED_MESSAGE, RunState, stop_codes
from experiments.records.result import Result, load_result, save_result
from experiments.records.source import record_imported, record_source
from experiments.tracking import Tracking
from experiments.train import Session, train
from transformer.data.module import TranslationDataModule
from transformer.data.prepared import PreparedCorpus
from transformer.files import make_directory
from transformer.kernels.threads import torch_threads
from transformer.training.method import check_classes
from transformer.training.optimizer import NonFiniteError
from transformer.variant import classes_of

# What gloo and NCCL report when the other end of a connection is gone.
_OF_LOST_RANKS = ("closed by peer", "reset by peer", "pair closure", "remote process exited")


def run(
    experiment: Experiment,
    directory: Path,
    *,
    devices: int | None = None,
    accumulate: int = 1,
    limits: Limits = Limits(),
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
            session = Session(world, accumulate, limits, checkpoints)
            trained = train(experiment, directory, data, tracking, display, session)
            trainer, _, diverged = trained
            if not trainer.is_global_zero:
                return None
            kept = None if keep_checkpoints else checkpoints
            result = _score(experiment, directory, data.corpus, trained, display, kept)
            if diverged is None:
                display.start(RunState.DONE)
            tracking.summarise(result)
        if diverged is not None:
            raise diverged
    return result


def _score(
    experiment: Experiment,
    directory: Path,
    corpus: PreparedCorpus,
    trained: tuple[Trainer, Clock, NonFiniteError | None],
    display: Display,
    kept: int | None,
) -> Result:
    """Score what was trained, and save the result with the checksums of the run's files.

    Args:
        kept: keep only the weights of the last checkpoints, at least of so many; None keeps all
    """
    trainer, clock, diverged = trained
    if diverged is not None:
        result = result_of_diverged(experiment, corpus, trainer, clock, diverged.step)
    else:
        result = score_run(experiment, directory, corpus, trainer, clock, display)
        training = experiment.config.training
        if kept is not None and result.steps == training.max_steps:
            keep_weights(directory, training, kept)
    check_not_removed(directory)
    record_imported(directory)
    result = record_checksums(directory, result)
    save_result(directory, result)
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
    recorded = load_experiment(directory)
    moved = replace(recorded, config=experiment.config)
    if moved == recorded or not is_first_rank():
        return result
    check_all_files(directory)
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
class Outcome:
    """How a run ended, and a line that says why; for a signal, its number and the last step too."""

    state: RunState
    message: str = ""
    signal: int | None = None
    step: int | None = None


def execute(experiment: Experiment, directory: Path, **settings: Any) -> Outcome:
    """Call :func:`run`, and turn the early ends that it knows into an outcome.

    Bad input, Ctrl-C, an exit on a signal and unknown errors are raised.
    """
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
        if error.code in stop_codes():
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
