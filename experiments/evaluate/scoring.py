"""Score a trained run."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

from experiments.devices import device_name, explain_out_of_memory, nominal_peak, peak_memory
from experiments.display import Display
from experiments.evaluate.options import DecodingOptions
from experiments.evaluate.parsing import score_parses
from experiments.evaluate.trained import (
    Text,
    TrainedModel,
    choose_checkpoints,
    load_average,
    load_decoder,
    text_of_split,
)
from experiments.records.checkpoints import to_average
from experiments.records.data import recorded_data
from experiments.records.experiment import Experiment, load_experiment
from experiments.records.outputs import Sample, hypotheses_path, samples_path
from experiments.records.progress import Progress, RunState
from experiments.records.provenance import commit, versions
from experiments.records.result import Averaged, Parses, Result, parse_scores
from transformer.config import to_dict
from transformer.data.prepared import PreparedCorpus
from transformer.data.text import read_aligned
from transformer.errors import InputError
from transformer.evaluation.bleu import Bleu, bleu, sentence_chrf, tokenised_bleu
from transformer.evaluation.counts import count_parameters, training_flops
from transformer.evaluation.perplexity import Perplexity, perplexity
from transformer.files import write_atomically, write_json
from transformer.training.precision import effective_precision

if TYPE_CHECKING:  # a translation needs no Lightning, whose import takes seconds
    import lightning.pytorch as lightning

    from experiments.callbacks.clock import Clock

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

    def figures(self, prefix: str = "") -> dict[str, Any]:
        """The fields of a :class:`Result` that these scores fill."""
        found = {
            "bleu": self.bleu and self.bleu.score,
            "tokenised_bleu": self.tokenised_bleu and self.tokenised_bleu.score,
            "perplexity": self.perplexity.per_token,
            "perplexity_per_char": self.perplexity.per_char,
            "parses": self.parses,
        }
        return {f"{prefix}{name}": value for name, value in found.items()}


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
    config, device = experiment.config, trainer.strategy.root_device
    vocabulary = corpus.vocabulary()

    def score_mean(checkpoints: list[Path], split: str, name: str) -> Scores:
        text = corpus.text(split)
        model = load_average(experiment, checkpoints, device)
        trained = TrainedModel(
            experiment=experiment, model=model, vocabulary=vocabulary, averaged=len(checkpoints)
        )
        path = hypotheses_path(directory, name)
        scores = score(trained, text, hypotheses_file=path, display=display)
        write_samples(samples_path(directory, name), text, scores.translations)
        return scores

    checkpoints = choose_checkpoints(experiment, directory)
    scores = {
        split: score_mean(checkpoints, split, split)
        for split in experiment.splits
        if corpus.has(split)
    }
    averaged, count = None, config.training.also_average
    more = checkpoints if count is None else to_average(directory, count)
    if more != checkpoints:
        valid = score_mean(more, "valid", "valid-averaged")
        averaged = Averaged(checkpoints=len(more), **valid.figures())
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
    config, device = experiment.config, trainer.strategy.root_device
    precision = effective_precision(config.training.precision, device)
    peak = nominal_peak(device_name(), precision)
    valid = scores["valid"]
    figures = valid.figures() | (scores["test"].figures("test_") if "test" in scores else {})
    return Result(
        experiment=experiment.name,
        seed=config.training.seed,
        bleu_signature=valid.bleu and valid.bleu.signature,
        tokenised_bleu_signature=valid.tokenised_bleu and valid.tokenised_bleu.signature,
        averaged=averaged,
        averaged_checkpoints=checkpoints,
        parameters=count_parameters(config.model),
        parameters_paper_vocab=count_parameters(config.model, _PAPER_VOCAB_SIZE),
        steps=trainer.global_step,
        source_tokens=clock.source_tokens,
        target_tokens=clock.target_tokens,
        flops=training_flops(config.model, clock.source_tokens, clock.target_tokens),
        flops_nominal=None if peak is None else clock.device_seconds * peak,
        train_seconds=clock.seconds,
        tokens_per_second=clock.target_tokens / clock.seconds,
        device=device_name(),
        devices=trainer.world_size,
        precision=precision,
        peak_memory_bytes=peak_memory(device),
        data_digest=corpus.manifest.digest,
        corpus_target_tokens=int(corpus.store("train").lengths[:, 1].sum()),
        versions=versions(),
        commit=commit(),
        finished_at=datetime.now(UTC).isoformat(timespec="seconds"),
        **figures,
    )


def score(
    trained: TrainedModel,
    text: Text,
    *,
    hypotheses_file: Path | None = None,
    display: Display,
) -> Scores:
    """Translate or parse ``text``, source and reference lines, and score that.

    Args:
        hypotheses_file: where to write the translations
    """
    source, reference = text
    display.start(RunState.EVALUATE)
    on_progress = show_lines(display, len(source))
    hypotheses = trained.decode(source, on_progress=on_progress)
    if hypotheses_file is not None:
        write_atomically(hypotheses_file, "".join(f"{line}\n" for line in hypotheses))
    likely = perplexity(trained.model, trained.vocabulary, source, reference)
    corpus = trained.experiment.config.data.corpus
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


def evaluate_run(
    directory: Path,
    options: DecodingOptions,
    *,
    split: str,
    source: Path | None,
    reference: Path | None,
    output: Path | None,
) -> None:
    """Print the scores of a run on a split, or on the lines of two files."""
    if (source is None) != (reference is None):
        raise InputError("--source and --reference belong together")
    if output is not None and not output.parent.is_dir():
        raise InputError(f"{output.parent} is not a folder: --output cannot be written")
    experiment = load_experiment(directory)
    text = (
        read_aligned(source, reference)
        if source is not None and reference is not None
        else text_of_split(experiment, split, recorded_data(directory))
    )
    trained = load_decoder(directory, options)
    with Display(None) as display:
        scores = score(trained, text, hypotheses_file=output, display=display)
    for name, found in (("BLEU", scores.bleu), ("tokenised BLEU", scores.tokenised_bleu)):
        if found is not None:
            print(f"{name} {found.score:.2f}  {found.signature}")
    if scores.parses is not None:
        print(parse_scores(scores.parses))
    print(
        f"perplexity {scores.perplexity.per_token:.3f} per word-piece, "
        f"{scores.perplexity.per_char:.3f} per character"
    )
    decoding = trained.experiment.config.decoding
    averaged = f", {trained.averaged} checkpoints averaged" if trained.averaged > 1 else ""
    print(
        f"{len(text[0]):,} lines, beam {decoding.beam_size}, "
        f"alpha {decoding.length_penalty}{averaged}"
    )
