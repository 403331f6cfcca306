"""Score a trained run."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING

import torch

from experiments.devices import device_name, explain_out_of_memory, nominal_peak, peak_memory
from experiments.display import Display
from experiments.evaluate.parsing import constrain_to_trees, score_parses
from experiments.records.checkpoints import has_checkpoints, to_average
from experiments.records.experiment import Experiment
from experiments.records.outputs import Sample, hypotheses_path, samples_path
from experiments.records.progress import Progress, RunState
from experiments.records.provenance import commit, versions
from experiments.records.result import Averaged, Parses, Result
from transformer.config import DecodingConfig, to_dict
from transformer.corpus import Corpus
from transformer.data.prepared import PreparedCorpus
from transformer.data.vocabulary import Vocabulary
from transformer.decoding.incremental import check_cache
from transformer.errors import InputError
from transformer.evaluation.bleu import Bleu, bleu, sentence_chrf, tokenised_bleu
from transformer.evaluation.counts import count_parameters, nominal_flops, training_flops
from transformer.evaluation.perplexity import Decode, Perplexity, perplexity, translate
from transformer.files import write_atomically, write_json
from transformer.model.encoder_decoder import Transformer
from transformer.training.checkpoints import average_weights
from transformer.training.precision import effective_precision
from transformer.variant import build

if TYPE_CHECKING:  # a translation needs no Lightning, whose import takes seconds
    import lightning.pytorch as lightning

    from experiments.callbacks.clock import Clock

Text = tuple[list[str], list[str]]

# Rows of the embedding with which the parameters add up to the paper's column.
_PAPER_VOCAB_SIZE = 40_960
_FEWER_AT_ONCE = "run fewer things on the device at once; training is done and is not lost"
# Share of the lines after which the time left can be estimated.
_SMALLEST_SHARE = 0.02
# How many of the best translations are kept with their source, and of the worst.
_SAMPLES = 5


@dataclass(frozen=True, kw_only=True, slots=True)
class Scores:
    """The perplexity of one text, its translations with both kinds of BLEU, or its parses."""

    translations: list[str]
    perplexity: Perplexity
    bleu: Bleu | None = None
    tokenised_bleu: Bleu | None = None
    parses: Parses | None = None


@explain_out_of_memory(lambda: "while scoring", _FEWER_AT_ONCE)
def score_run(
    experiment: Experiment,
    directory: Path,
    corpus: PreparedCorpus,
    trainer: lightning.Trainer,
    clock: Clock,
    display: Display,
) -> Result:
    """Score the checkpoints of a run that has been trained, and write its translations.

    Raises:
        InputError: if it has no checkpoint that can be read.
        OutOfMemoryError: if there is not enough memory.
    """
    vocabulary, device = corpus.vocabulary(), trainer.strategy.root_device

    def score_mean(checkpoints: list[Path], split: str, name: str) -> Scores:
        text = corpus.text(split)
        scores = score(
            load_average(experiment, checkpoints, device),
            vocabulary,
            text,
            experiment.config.decoding,
            experiment.config.data.corpus,
            hypotheses_file=hypotheses_path(directory, name),
            display=display,
        )
        write_samples(samples_path(directory, name), text, scores.translations)
        return scores

    checkpoints = choose_checkpoints(experiment, directory)
    scores = {
        split: score_mean(checkpoints, split, split)
        for split in experiment.splits
        if corpus.has(split)
    }
    averaged, count = None, experiment.config.training.also_average
    more = checkpoints if count is None else to_average(directory, count)
    if more != checkpoints:
        valid = score_mean(more, "valid", "valid-averaged")
        averaged = Averaged(
            checkpoints=len(more),
            bleu=valid.bleu and valid.bleu.score,
            tokenised_bleu=valid.tokenised_bleu and valid.tokenised_bleu.score,
            perplexity=valid.perplexity.per_token,
            perplexity_per_char=valid.perplexity.per_char,
            parses=valid.parses,
        )
    return _result(experiment, corpus, trainer, clock, scores, len(checkpoints), averaged)


def _result(
    experiment: Experiment,
    corpus: PreparedCorpus,
    trainer: lightning.Trainer,
    clock: Clock,
    scores: dict[str, Scores],
    checkpoints: int,
    averaged: Averaged | None,
) -> Result:
    config = experiment.config
    valid, test = scores["valid"], scores.get("test")
    precision = effective_precision(config.training.precision, trainer.strategy.root_device)
    peak = nominal_peak(device_name(), precision)
    return Result(
        experiment=experiment.name,
        seed=config.training.seed,
        bleu=valid.bleu and valid.bleu.score,
        bleu_signature=valid.bleu and valid.bleu.signature,
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
        averaged_checkpoints=checkpoints,
        versions=versions(),
        commit=commit(),
        finished_at=datetime.now(UTC).isoformat(timespec="seconds"),
        devices=trainer.world_size,
        flops_nominal=None if peak is None else nominal_flops(clock.device_seconds, peak),
        test_bleu=test.bleu.score if test and test.bleu else None,
        test_perplexity=test.perplexity.per_token if test else None,
        test_perplexity_per_char=test.perplexity.per_char if test else None,
        tokenised_bleu=valid.tokenised_bleu and valid.tokenised_bleu.score,
        tokenised_bleu_signature=valid.tokenised_bleu and valid.tokenised_bleu.signature,
        test_tokenised_bleu=test.tokenised_bleu.score if test and test.tokenised_bleu else None,
        averaged=averaged,
        data_digest=corpus.manifest.digest,
        corpus_target_tokens=int(corpus.store("train").lengths[:, 1].sum()),
        parses=valid.parses,
        test_parses=test.parses if test else None,
        peak_memory_bytes=peak_memory(trainer.strategy.root_device),
    )


def choose_checkpoints(
    experiment: Experiment, directory: Path, average: int | None = None
) -> list[Path]:
    """The last ``average`` checkpoints; if None, as many as configured or as there are.

    Raises:
        InputError: if the run has no checkpoint, or fewer than asked for.
    """
    if average is not None and average < 1:
        raise InputError(f"average is {average}, but must be at least 1")
    paths = to_average(directory, average or experiment.config.training.average_checkpoints)
    if not paths and has_checkpoints(directory):
        raise InputError(
            f"none of the checkpoints of {directory} can be read: train again, or copy them again"
        )
    if not paths:
        raise InputError(f"{directory} has no checkpoint yet: train it first")
    if average is not None and len(paths) < average:
        raise InputError(
            f"{directory} holds {len(paths)} of the {average} checkpoints to average: "
            "train longer, with average_checkpoints set to as many"
        )
    return paths


def load_average(
    experiment: Experiment, checkpoints: list[Path], device: torch.device
) -> Transformer:
    """The model with the mean of the checkpoints' weights.

    Raises:
        InputError: if it is a variant that is not known here, has changed, or breaks the cache.
    """
    model = build(experiment.config.model)
    model.load_state_dict(average_weights(checkpoints))
    model.to(device).eval()
    if experiment.config.model.model is not None:
        check_cache(model)
    return model


def score(
    model: Transformer,
    vocabulary: Vocabulary,
    text: Text,
    decoding: DecodingConfig,
    corpus: Corpus,
    *,
    decode: Decode | None = None,
    hypotheses_file: Path | None = None,
    display: Display,
) -> Scores:
    """Translate or parse ``text``, source and reference lines, and score that.

    Args:
        corpus: on which the model was trained
        decode: the search, if not our own
        hypotheses_file: where to write the translations
    """
    source, reference = text
    display.start(RunState.EVALUATE)
    on_progress = show_lines(display, len(source))
    constrain = None
    if corpus.task == "parsing":
        constrain = constrain_to_trees(corpus, vocabulary, model.embedding.weight.device)
    hypotheses = translate(
        model,
        vocabulary,
        source,
        decoding,
        decode=decode,
        constrain=constrain,
        on_progress=on_progress,
    )
    if hypotheses_file is not None:
        write_atomically(hypotheses_file, "".join(f"{line}\n" for line in hypotheses))
    likely = perplexity(model, vocabulary, source, reference)
    if corpus.task == "parsing":
        parses = score_parses(source, reference, hypotheses)
        return Scores(translations=hypotheses, perplexity=likely, parses=parses)
    return Scores(
        translations=hypotheses,
        perplexity=likely,
        bleu=bleu(hypotheses, reference),
        tokenised_bleu=tokenised_bleu(hypotheses, reference, corpus.target_language),
    )


def write_samples(path: Path, text: Text, translations: list[str]) -> None:
    """Write the best and the worst translations of ``text`` by chrF, best first."""
    source, reference = text
    chrf = sentence_chrf(translations, reference)
    order = sorted(range(len(chrf)), key=lambda line: -chrf[line])
    if len(order) > 2 * _SAMPLES:
        order = order[:_SAMPLES] + order[-_SAMPLES:]
    samples = [
        Sample(
            chrf=round(chrf[line], 1),
            source=source[line],
            reference=reference[line],
            translation=translations[line],
        )
        for line in order
    ]
    write_json(path, {"samples": [to_dict(sample) for sample in samples]})


def show_lines(display: Display, lines: int) -> Callable[[int], None]:
    """A callback for :func:`translate` that updates ``display``."""
    started = time.monotonic()

    def update(done: int) -> None:
        elapsed = time.monotonic() - started
        # Lines arrive in batches, so the first few say nothing about the speed.
        left = elapsed / done * (lines - done) if done >= _SMALLEST_SHARE * lines else None
        display.update(
            Progress(stage=RunState.EVALUATE, step=done, max_steps=lines, seconds_left=left)
        )

    return update
