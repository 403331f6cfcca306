"""One run from configuration to result: the only place with a Trainer and its loggers."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

import lightning.pytorch as lightning
import torch
from rich.console import Console

from experiments.callbacks.checkpoints import AtomicCheckpointIO, Checkpoints, newest_sound
from experiments.callbacks.clock import Clock
from experiments.callbacks.display import Display, ShowTraining
from experiments.callbacks.metrics import MetricsCsv
from experiments.callbacks.stopping import StopOnSignal
from experiments.evaluate.scoring import (
    Scores,
    choose_checkpoints,
    load_model,
    score,
    score_average,
)
from experiments.run.data import note_data, noted_data
from experiments.run.devices import (
    World,
    default_device,
    device_name,
    find_world,
    is_first_rank,
    refuse_more_than_there_are,
)
from experiments.run.experiment import Experiment, claim
from experiments.run.limits import Limits
from experiments.run.memory import explained
from experiments.run.ownership import explaining_removal, own, refuse_removed
from experiments.run.peak import nominal_peak
from experiments.run.progress import RunState
from experiments.run.provenance import commit, versions
from experiments.run.quiet import quieten_libraries
from experiments.run.results import Averaged, Result, hypotheses_path, load_result, save_result
from experiments.run.tracking import Tracking
from transformer.data.module import TranslationDataModule
from transformer.data.prepared import PreparedCorpus
from transformer.errors import InputError
from transformer.evaluation.counts import count_parameters, nominal_flops, training_flops
from transformer.kernels.threads import torch_threads
from transformer.training.module import TransformerModule
from transformer.training.precision import effective_precision

# Rows of the embedding that the paper's column of parameters fits.
_PAPER_VOCAB_SIZE = 40_960
_FEWER_AT_ONCE = "run fewer things on the device at once; training is done and is not lost"
_SMALLER_STEPS = (
    "part each step into more pieces (--accumulate), share it among more devices (--devices, of a "
    "table --devices-per-trial), or set fewer tokens_per_batch"
)


@dataclass(frozen=True, kw_only=True, slots=True)
class _Setup:
    """What a run's configuration leaves open."""

    world: World
    accumulate: int
    limits: Limits


def run(
    experiment: Experiment,
    directory: Path,
    *,
    devices: int | None = None,
    accumulate: int = 1,
    limits: Limits | None = None,
    splits: tuple[str, ...] = ("valid", "test"),
    fenced: bool = False,
) -> Result | None:
    """Train, evaluate and write the result; go on where an earlier run in ``directory`` was.

    Of several ranks the first alone scores; the others return None as soon as training is over.

    Args:
        experiment: the configuration, with its seed
        directory: is made; gets the files that the README lists
        devices: GPUs, or processes on the CPU where there is none; None takes as many as
            ``torchrun`` has started, else one
        accumulate: parts into which each device divides its share of a batch, to hold one at a
            time: one device with eight takes the steps of eight devices with one, up to rounding
        limits: where training ends sooner
        splits: what is scored at the end, as far as the corpus has it; must hold ``valid``
        fenced: another attempt takes the run over by renaming ``directory``, which is therefore
            there already and never made anew: from then on whatever is written here fails

    Raises:
        InputError: if the directory belongs to another configuration, is in use or is removed
            meanwhile, the data cannot be had, or there are not so many devices.
        NonFiniteError: if training diverges.
        OutOfMemoryError: if there is not enough memory.
        StoppedError: if a signal ended it; a checkpoint is written.
    """
    limits = limits or Limits()
    world = find_world(devices)
    refuse_more_than_there_are(world.local)
    if accumulate < 1:
        raise InputError(f"accumulate is {accumulate}, but must be at least 1")
    quieten_libraries()
    with (
        own(directory, experiment, make=not fenced),
        torch_threads(experiment.config.training.threads),
    ):
        result = load_result(directory)
        if result is not None and limits.reached_by(result, experiment):
            return result
        display = Display(directory) if is_first_rank() else Display(None, Console(quiet=True))
        try:
            setup = _Setup(world=world, accumulate=accumulate, limits=limits)
            return _train_and_score(experiment, directory, setup, splits, display)
        finally:
            display.stop()


def _train_and_score(
    experiment: Experiment,
    directory: Path,
    setup: _Setup,
    splits: tuple[str, ...],
    display: Display,
) -> Result | None:
    display.start(RunState.PREPARE)
    data = TranslationDataModule(experiment.config, noted_data(directory))
    corpus = data.corpus
    if is_first_rank():
        claim(directory, experiment, make=False)  # not before the data is known to be usable
        note_data(directory, corpus)
    with Tracking(experiment, directory) as tracking, explaining_removal(directory):
        display.start(RunState.TRAIN)
        trainer, clock = _train(experiment, directory, setup, data, tracking, display)
        if not trainer.is_global_zero:
            return None
        with explained(lambda: "while scoring", _FEWER_AT_ONCE):
            checkpoints, scores, averaged = _score(
                experiment, directory, corpus, splits, trainer.strategy.root_device, display
            )
        result = _result(experiment, trainer, corpus, clock, scores, checkpoints, averaged)
        refuse_removed(directory)
        save_result(directory, result)
        display.start(RunState.DONE)
        tracking.summarise(result)
    return result


def _train(
    experiment: Experiment,
    directory: Path,
    setup: _Setup,
    data: TranslationDataModule,
    tracking: Tracking,
    display: Display,
) -> tuple[lightning.Trainer, Clock]:
    config = experiment.config.training
    newest = newest_sound(directory)
    step, checkpoint = newest or (0, None)
    max_steps, max_seconds = setup.limits.steps(experiment), setup.limits.seconds
    clock = Clock(max_seconds)
    checkpoints = Checkpoints(directory, config, clock)
    trainer = lightning.Trainer(
        accelerator=default_device().type,
        devices=setup.world.local,
        num_nodes=setup.world.nodes,
        strategy="ddp" if setup.world.size > 1 else "auto",
        max_steps=max_steps,
        max_epochs=-1,
        accumulate_grad_batches=setup.accumulate,
        val_check_interval=config.validate_every_steps * setup.accumulate,  # in micro-batches
        check_val_every_n_epoch=None,
        num_sanity_val_steps=0,
        log_every_n_steps=config.log_every_steps,
        logger=tracking.loggers(),
        callbacks=[
            clock,
            StopOnSignal(checkpoints),
            MetricsCsv(directory, every=config.log_every_steps, resumed_step=step),
            checkpoints,
            ShowTraining(display, max_steps, max_seconds),
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
    with explained(lambda: f"in step {trainer.global_step + 1} of training", _SMALLER_STEPS):
        module = TransformerModule(experiment.config)
        trainer.fit(module, datamodule=data, ckpt_path=checkpoint, weights_only=True)
    return trainer, clock


def _score(
    experiment: Experiment,
    directory: Path,
    corpus: PreparedCorpus,
    splits: tuple[str, ...],
    device: torch.device,
    display: Display,
) -> tuple[int, dict[str, Scores], Averaged | None]:
    """The number of checkpoints that are averaged, their scores, and those of more of them."""
    checkpoints = choose_checkpoints(experiment, directory)
    model = load_model(experiment, checkpoints, device=device)
    scores = {
        split: score(
            model,
            corpus.vocabulary(),
            corpus.text(split),
            experiment.config.decoding,
            language=experiment.config.data.corpus.target_language,
            hypotheses_file=hypotheses_path(directory, split),
            display=display,
        )
        for split in splits
        if corpus.has(split)
    }
    averaged = score_average(
        experiment,
        directory,
        corpus.vocabulary(),
        corpus.text("valid"),
        besides=checkpoints,
        device=device,
        display=display,
    )
    return len(checkpoints), scores, averaged


def _result(
    experiment: Experiment,
    trainer: lightning.Trainer,
    corpus: PreparedCorpus,
    clock: Clock,
    scores: dict[str, Scores],
    averaged_checkpoints: int,
    averaged: Averaged | None,
) -> Result:
    config = experiment.config
    valid, test = scores["valid"], scores.get("test")
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
        averaged_checkpoints=averaged_checkpoints,
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
        averaged=averaged,
        data_digest=corpus.manifest.digest,
        corpus_target_tokens=int(corpus.store("train").lengths[:, 1].sum()),
    )
