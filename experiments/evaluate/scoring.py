"""BLEU and perplexity of a model on a text: at the end of a run, or when a user asks."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import torch

from experiments.callbacks.checkpoints import to_average
from experiments.callbacks.display import Display
from experiments.evaluate.translation import (
    DecodingOptions,
    choose_checkpoints,
    load_average,
    open_decoder,
)
from experiments.run.data import recorded_data
from experiments.run.experiment import Experiment, load_experiment
from experiments.run.files import write_atomically
from experiments.run.progress import Progress
from experiments.run.results import Averaged, hypotheses_path
from transformer.config import DecodingConfig
from transformer.data.fetching.testsets import sacrebleu_text
from transformer.data.manifest import Manifest
from transformer.data.preparation.prepare import prepare
from transformer.data.prepared import PreparedCorpus
from transformer.data.text import read_aligned
from transformer.data.vocabulary import Vocabulary
from transformer.errors import InputError
from transformer.evaluation.bleu import Bleu, bleu, tokenised_bleu
from transformer.evaluation.perplexity import Decode, Perplexity, perplexity, translate
from transformer.model.encoder_decoder import Transformer

Text = tuple[list[str], list[str]]

# Share of the lines after which the time left can be estimated.
_SMALLEST_SHARE = 0.02


@dataclass(frozen=True, kw_only=True, slots=True)
class Scores:
    """Both kinds of BLEU and the perplexity of one text."""

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

    def score_mean(checkpoints: list[Path], names: dict[str, str]) -> dict[str, Scores]:
        model = load_average(experiment, checkpoints, device)
        return {
            split: score(
                model,
                vocabulary,
                corpus.text(split),
                experiment.config.decoding,
                language=experiment.config.data.corpus.target_language,
                hypotheses_file=hypotheses_path(directory, name),
                display=display,
            )
            for split, name in names.items()
        }

    checkpoints = choose_checkpoints(experiment, directory)
    scores = score_mean(checkpoints, {split: split for split in splits if corpus.has(split)})
    averaged, count = None, experiment.config.training.also_average
    more = checkpoints if count is None else to_average(directory, count)
    if more != checkpoints:
        valid = score_mean(more, {"valid": "valid-averaged"})["valid"]
        averaged = Averaged(
            checkpoints=len(more),
            bleu=valid.bleu.score,
            tokenised_bleu=valid.tokenised_bleu.score,
            perplexity=valid.perplexity.per_token,
            perplexity_per_char=valid.perplexity.per_char,
        )
    return RunScores(by_split=scores, checkpoints=len(checkpoints), averaged=averaged)


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
    display.start("evaluate")
    on_progress = show_lines(display, len(source))
    hypotheses = translate(
        model, vocabulary, source, decoding, decode=decode, on_progress=on_progress
    )
    if hypotheses_file is not None:
        write_atomically(hypotheses_file, "".join(f"{line}\n" for line in hypotheses))
    return Scores(
        bleu=bleu(hypotheses, reference),
        tokenised_bleu=tokenised_bleu(hypotheses, reference, language),
        perplexity=perplexity(model, vocabulary, source, reference),
    )


def show_lines(display: Display, lines: int) -> Callable[[int], None]:
    """A callback for :func:`translate` that updates ``display``."""
    started = time.monotonic()

    def update(done: int) -> None:
        elapsed = time.monotonic() - started
        # Lines arrive in batches, so the first few say nothing about the speed.
        left = elapsed / done * (lines - done) if done >= _SMALLEST_SHARE * lines else None
        display.update(Progress(stage="evaluate", step=done, max_steps=lines, seconds_left=left))

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
    """Print the scores of a run on a split, or on the lines of two files.

    Raises:
        InputError: if the run, the split or a file cannot be used.
    """
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
    trained, decoding, decode = open_decoder(directory, options)
    with Display(None) as display:
        scores = score(
            trained.model,
            trained.vocabulary,
            text,
            decoding,
            language=experiment.config.data.corpus.target_language,
            decode=decode,
            hypotheses_file=output,
            display=display,
        )
    print(f"BLEU {scores.bleu.score:.2f}  {scores.bleu.signature}")
    print(f"tokenised BLEU {scores.tokenised_bleu.score:.2f}  {scores.tokenised_bleu.signature}")
    print(
        f"perplexity {scores.perplexity.per_token:.3f} per word-piece, "
        f"{scores.perplexity.per_char:.3f} per character"
    )
    averaged = f", {trained.averaged} checkpoints averaged" if trained.averaged > 1 else ""
    print(
        f"{len(text[0]):,} lines, beam {decoding.beam_size}, "
        f"alpha {decoding.length_penalty}{averaged}"
    )


def text_of_split(experiment: Experiment, split: str, recorded: Manifest | None = None) -> Text:
    """Source and reference lines of ``valid``, ``test`` or a set that sacreBLEU knows.

    Args:
        recorded: the data that the run started with

    Raises:
        InputError: if there is no such split, or the data has changed.
    """
    corpus = experiment.config.data.corpus
    if split in ("valid", "test"):
        if split not in corpus.splits:
            raise InputError(
                f"the corpus {corpus.name} has no test set: give --source, --reference"
            )
        return prepare(experiment.config, expected=recorded).text(split)
    return sacrebleu_text(split, f"{corpus.source_language}-{corpus.target_language}")
