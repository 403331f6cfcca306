"""One run from configuration to result: the only place with a Trainer and its loggers."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path

import lightning.pytorch as lightning

from experiments.callbacks.checkpoints import AtomicCheckpointIO, Checkpoints, newest_sound
from experiments.callbacks.clock import Clock
from experiments.callbacks.display import Display, ShowTraining, quieten_lightning
from experiments.callbacks.metrics import LogAxes, MetricsCsv
from experiments.callbacks.stopping import StopOnSignal
from experiments.evaluate.scoring import RunScores, score_run
from experiments.run.data import record_data, recorded_data
from experiments.run.devices import (
    World,
    default_device,
    device_name,
    explain_out_of_memory,
    find_world,
    is_first_rank,
    nominal_peak,
)
from experiments.run.experiment import Experiment, Limits, Log, claim
from experiments.run.ownership import check_not_removed, explain_removal, lock_directory
from experiments.run.progress import RunState
from experiments.run.provenance import commit, versions
from experiments.run.results import Result, load_result, save_result
from experiments.run.tracking import Tracking
from transformer.data.module import TranslationDataModule
from transformer.data.prepared import PreparedCorpus
from transformer.errors import InputError
from transformer.evaluation.counts import count_parameters, nominal_flops, training_flops
from transformer.kernels.threads import torch_threads
from transformer.training.module import TransformerModule
from transformer.training.precision import effective_precision

# Rows of the embedding with which the parameters add up to the paper's column.
_PAPER_VOCAB_SIZE = 40_960
_FEWER_AT_ONCE = "run fewer things on the device at once; training is done and is not lost"
_SMALLER_STEPS = (
    "divide each step into more parts (--accumulate), share it among more devices (--devices, of a "
    "table --devices-per-trial), or set fewer tokens_per_batch"
)


def run(
    experiment: Experiment,
    directory: Path,
    *,
    devices: int | None = None,
    accumulate: int = 1,
    limits: Limits | None = None,
    splits: tuple[str, ...] = ("valid", "test"),
    fenced: bool = False,
    log: Log = "wandb",
) -> Result | None:
    """Train, evaluate and write the result, continuing where an earlier run in ``directory`` was.

    Of several ranks only the first scores; the others return None as soon as training is over.

    Args:
        experiment: the configuration, with its seed
        directory: of the run; docs/runs.md lists the files in it
        devices: GPUs, or processes on the CPU if there is no GPU; None takes as many as
            ``torchrun`` has started, or one
        accumulate: parts into which each device divides its share of a batch, to hold one at a
            time: one device with eight parts takes the same steps as eight devices with one, up to
            rounding
        limits: where training ends sooner than configured
        splits: what is scored at the end, if the corpus has it; must include ``valid``
        fenced: another attempt may take the run over by renaming ``directory``. It exists already,
            and is not made again after that, so that whatever this process still writes fails.
        log: what tracks the run besides ``metrics.csv``

    Raises:
        InputError: if the directory belongs to another configuration, is in use or is removed
            during the run, the data cannot be had, or there are not enough devices.
        NonFiniteError: if training diverges.
        OutOfMemoryError: if there is not enough memory.
        StoppedError: if a signal ended it, after a checkpoint.
    """
    limits = limits or Limits()
    world = find_world(devices)
    if accumulate < 1:
        raise InputError(f"accumulate is {accumulate}, but must be at least 1")
    quieten_lightning()
    with (
        lock_directory(directory, experiment, make=not fenced),
        torch_threads(experiment.config.training.threads),
        Display(directory) as display,
    ):
        result = load_result(directory)
        if result is not None and _has_reached(limits, result, experiment):
            return result
        display.start(RunState.PREPARE)
        data = TranslationDataModule(experiment.config, recorded_data(directory))
        corpus = data.corpus  # prepared before the claim: it may be refused
        if is_first_rank():
            claim(directory, experiment, make=False)
            record_data(directory, corpus)
        with Tracking(experiment, directory, log) as tracking, explain_removal(directory):
            display.start(RunState.TRAIN)
            trainer, clock = _train(
                experiment, directory, data, tracking, display, world, accumulate, limits
            )
            if not trainer.is_global_zero:
                return None
            with explain_out_of_memory(lambda: "while scoring", _FEWER_AT_ONCE):
                device = trainer.strategy.root_device
                scores = score_run(
                    experiment, directory, corpus, splits, device=device, display=display
                )
            result = _result(experiment, trainer, corpus, clock, scores)
            check_not_removed(directory)
            save_result(directory, result)
            display.start(RunState.DONE)
            tracking.summarise(result)
    return result


def _has_reached(limits: Limits, result: Result, experiment: Experiment) -> bool:
    """Whether nothing is left to train within the limits."""
    out_of_time = limits.seconds is not None and result.train_seconds >= limits.seconds
    return result.steps >= limits.steps(experiment.config.training.max_steps) or out_of_time


def _train(
    experiment: Experiment,
    directory: Path,
    data: TranslationDataModule,
    tracking: Tracking,
    display: Display,
    world: World,
    accumulate: int,
    limits: Limits,
) -> tuple[lightning.Trainer, Clock]:
    """Train to the end; :mod:`experiments.callbacks` says why Lightning's own parts are off."""
    config = experiment.config.training
    step, checkpoint = newest_sound(directory) or (0, None)
    max_steps = limits.steps(config.max_steps)
    clock = Clock(limits.seconds)
    checkpoints = Checkpoints(directory, config, clock)
    trainer = lightning.Trainer(
        accelerator=default_device().type,
        devices=world.local,
        num_nodes=world.nodes,
        strategy="ddp" if world.size > 1 else "auto",
        max_steps=max_steps,
        max_epochs=-1,
        accumulate_grad_batches=accumulate,
        val_check_interval=config.validate_every_steps * accumulate,  # in micro-batches
        check_val_every_n_epoch=None,
        num_sanity_val_steps=0,
        log_every_n_steps=config.log_every_steps,
        logger=tracking.loggers(step),
        callbacks=[
            clock,
            LogAxes(clock, every=config.log_every_steps),
            StopOnSignal(checkpoints),
            MetricsCsv(directory, every=config.log_every_steps, resumed_step=step),
            checkpoints,
            ShowTraining(display, max_steps, limits.seconds),
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
    with explain_out_of_memory(
        lambda: f"in step {trainer.global_step + 1} of training", _SMALLER_STEPS
    ):
        module = TransformerModule(experiment.config)
        trainer.fit(module, datamodule=data, ckpt_path=checkpoint, weights_only=True)
    return trainer, clock


def _result(
    experiment: Experiment,
    trainer: lightning.Trainer,
    corpus: PreparedCorpus,
    clock: Clock,
    scores: RunScores,
) -> Result:
    config = experiment.config
    valid, test = scores.by_split["valid"], scores.by_split.get("test")
    precision = effective_precision(config.training.precision, trainer.strategy.root_device)
    peak = nominal_peak(device_name(), precision)
    return Result(
        experiment=experiment.name,
        seed=config.training.seed,
        bleu=valid.bleu.score,
        bleu_signature=valid.bleu.signature,
        perplexity=valid.perplexity.per_token,
        perplexity_per_char=valid.perplexity.per_char,
        parameters=count_parameters(config.model),
        parameters_paper_vocab=count_parameters(config.model, _PAPER_VOCAB_SIZE),
        steps=trainer.global_step,
        source_tokens=clock.source_tokens,
        target_tokens=clock.target_tokens,
        flops=training_flops(config.model, clock.source_tokens, clock.target_tokens),
        train_seconds=clock.seconds,
        tokens_per_second=clock.target_tokens / clock.seconds,
        device=device_name(),
        precision=precision,
        averaged_checkpoints=scores.checkpoints,
        versions=versions(),
        commit=commit(),
        finished_at=datetime.now(UTC).isoformat(timespec="seconds"),
        devices=trainer.world_size,
        flops_nominal=None if peak is None else nominal_flops(clock.device_seconds, peak),
        test_bleu=test.bleu.score if test else None,
        test_perplexity=test.perplexity.per_token if test else None,
        test_perplexity_per_char=test.perplexity.per_char if test else None,
        tokenised_bleu=valid.tokenised_bleu.score,
        tokenised_bleu_signature=valid.tokenised_bleu.signature,
        test_tokenised_bleu=test.tokenised_bleu.score if test else None,
        averaged=scores.averaged,
        data_digest=corpus.manifest.digest,
        corpus_target_tokens=int(corpus.store("train").lengths[:, 1].sum()),
    )
