"""BLEU and perplexity of a trained model, and which checkpoints make it up."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import torch

from experiments.callbacks.checkpoints import has_checkpoints, to_average
from experiments.callbacks.display import Display
from experiments.run.experiment import Experiment
from experiments.run.files import write_atomically, write_json
from experiments.run.progress import Progress, RunState
from experiments.run.results import Averaged, Sample, hypotheses_path, samples_path
from transformer.config import DecodingConfig, to_dict
from transformer.data.prepared import PreparedCorpus
from transformer.data.vocabulary import Vocabulary
from transformer.errors import InputError
from transformer.evaluation.bleu import Bleu, bleu, sentence_chrf, tokenised_bleu
from transformer.evaluation.perplexity import Decode, Perplexity, perplexity, translate
from transformer.model.encoder_decoder import Transformer
from transformer.training.checkpoints import average_weights
from transformer.training.module import TransformerModule

Text = tuple[list[str], list[str]]

# Share of the lines after which the time left can be estimated.
_SMALLEST_SHARE = 0.02
# How many of the best translations are kept with their source, and of the worst.
_SAMPLES = 5


@dataclass(frozen=True, kw_only=True, slots=True)
class Scores:
    """Both kinds of BLEU and the perplexity of one text, and its translations."""

    translations: list[str]
    bleu: Bleu
    tokenised_bleu: Bleu
    perplexity: Perplexity


@dataclass(frozen=True, kw_only=True, slots=True)
class RunScores:
    """Scores of each split by the mean of the last ``checkpoints``; and on the validation set of
    the mean of more of them, if the configuration asks for it and there are more.
    """

    by_split: dict[str, Scores]
    checkpoints: int
    averaged: Averaged | None


def score_run(
    experiment: Experiment,
    directory: Path,
    corpus: PreparedCorpus,
    splits: tuple[str, ...],
    *,
    device: torch.device,
    display: Display,
) -> RunScores:
    """Score the checkpoints of a run, and write its translations into ``directory``."""
    vocabulary = corpus.vocabulary()

    def score_mean(checkpoints: list[Path], split: str, name: str) -> Scores:
        text = corpus.text(split)
        scores = score(
            load_average(experiment, checkpoints, device),
            vocabulary,
            text,
            experiment.config.decoding,
            language=experiment.config.data.corpus.target_language,
            hypotheses_file=hypotheses_path(directory, name),
            display=display,
        )
        write_samples(samples_path(directory, name), text, scores.translations)
        return scores

    checkpoints = choose_checkpoints(experiment, directory)
    scores = {split: score_mean(checkpoints, split, split) for split in splits if corpus.has(split)}
    averaged, count = None, experiment.config.training.also_average
    more = checkpoints if count is None else to_average(directory, count)
    if more != checkpoints:
        valid = score_mean(more, "valid", "valid-averaged")
        averaged = Averaged(
            checkpoints=len(more),
            bleu=valid.bleu.score,
            tokenised_bleu=valid.tokenised_bleu.score,
            perplexity=valid.perplexity.per_token,
            perplexity_per_char=valid.perplexity.per_char,
        )
    return RunScores(by_split=scores, checkpoints=len(checkpoints), averaged=averaged)


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
    """The model with the mean of the checkpoints' weights."""
    module = TransformerModule(experiment.config)
    module.load_state_dict(average_weights(checkpoints))
    return module.model.to(device).eval()


def score(
    model: Transformer,
    vocabulary: Vocabulary,
    text: Text,
    decoding: DecodingConfig,
    *,
    language: str,
    decode: Decode | None = None,
    hypotheses_file: Path | None = None,
    display: Display,
) -> Scores:
    """Translate and score ``text``, source and reference lines.

    Args:
        language: of the references
        decode: the search, if not our own
        hypotheses_file: where to write the translations
    """
    source, reference = text
    display.start(RunState.EVALUATE)
    on_progress = show_lines(display, len(source))
    hypotheses = translate(
        model, vocabulary, source, decoding, decode=decode, on_progress=on_progress
    )
    if hypotheses_file is not None:
        write_atomically(hypotheses_file, "".join(f"{line}\n" for line in hypotheses))
    return Scores(
        translations=hypotheses,
        bleu=bleu(hypotheses, reference),
        tokenised_bleu=tokenised_bleu(hypotheses, reference, language),
        perplexity=perplexity(model, vocabulary, source, reference),
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
