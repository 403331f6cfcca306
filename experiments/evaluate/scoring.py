"""Scores of a run's model on a split, or on any text, and its translations."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import torch

from experiments.callbacks.checkpoints import has_checkpoints, to_average
from experiments.callbacks.display import Display
from experiments.run.experiment import Experiment
from experiments.run.files import write_atomically
from experiments.run.progress import Progress, RunState
from experiments.run.results import Averaged, hypotheses_path
from transformer.config import DecodingConfig
from transformer.data.vocabulary import Vocabulary
from transformer.errors import InputError
from transformer.evaluation.bleu import Bleu, bleu, tokenised_bleu
from transformer.evaluation.perplexity import Decode, Perplexity, perplexity, translate
from transformer.model.encoder_decoder import Transformer
from transformer.training.checkpoints import average_weights
from transformer.training.module import TransformerModule

# Of the lines, before which no one can say how long the rest will take.
_FEWEST_SHARE = 0.02


@dataclass(frozen=True, kw_only=True, slots=True)
class Scores:
    """Both kinds of BLEU and the perplexity of one text."""

    bleu: Bleu
    tokenised_bleu: Bleu
    perplexity: Perplexity


def choose_checkpoints(
    experiment: Experiment, directory: Path, average: int | None = None
) -> list[Path]:
    """The last ``average`` checkpoints; if None as many as configured, or as there are.

    Raises:
        InputError: if the run has no checkpoint, or fewer than asked for.
    """
    training = experiment.config.training
    if average is not None and average < 1:
        raise InputError(f"average is {average}, but must be at least 1")
    wanted = average or training.average_checkpoints
    paths = to_average(directory, wanted)
    if not paths and has_checkpoints(directory):
        raise InputError(
            f"none of the checkpoints of {directory} can be read: train it again, or copy them anew"
        )
    if not paths:
        raise InputError(f"{directory} has no checkpoint yet: train it first")
    if average is not None and len(paths) < average:
        raise InputError(
            f"{directory} holds {len(paths)} of the {average} checkpoints to average: "
            "train longer, with average_checkpoints set to as many"
        )
    return paths


def load_model(
    experiment: Experiment, checkpoints: list[Path], *, device: torch.device
) -> Transformer:
    """The model with the mean of the checkpoints' weights."""
    module = TransformerModule(experiment.config)
    module.load_state_dict(average_weights(checkpoints))
    return module.model.to(device).eval()


def score(
    model: Transformer,
    vocabulary: Vocabulary,
    text: tuple[list[str], list[str]],
    decoding: DecodingConfig,
    *,
    language: str,
    decode: Decode | None = None,
    hypotheses_file: Path | None = None,
    display: Display,
) -> Scores:
    """Score the translations of ``text``, source and reference lines, and write them down.

    Args:
        language: that of the references
        decode: the search, if not our own
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
        bleu=bleu(hypotheses, reference),
        tokenised_bleu=tokenised_bleu(hypotheses, reference, language),
        perplexity=perplexity(model, vocabulary, source, reference),
    )


def score_average(
    experiment: Experiment,
    directory: Path,
    vocabulary: Vocabulary,
    valid: tuple[list[str], list[str]],
    *,
    besides: list[Path],
    device: torch.device,
    display: Display,
) -> Averaged | None:
    """The mean of as many checkpoints as ``also_average`` says, scored on the validation set.

    None where that is not set, or there are no checkpoints but those scored already, ``besides``.
    """
    training = experiment.config.training
    if training.also_average is None:
        return None
    checkpoints = to_average(directory, training.also_average)
    if checkpoints == besides:
        return None
    scores = score(
        load_model(experiment, checkpoints, device=device),
        vocabulary,
        valid,
        experiment.config.decoding,
        language=experiment.config.data.corpus.target_language,
        hypotheses_file=hypotheses_path(directory, "valid-averaged"),
        display=display,
    )
    return Averaged(
        checkpoints=len(checkpoints),
        bleu=scores.bleu.score,
        tokenised_bleu=scores.tokenised_bleu.score,
        perplexity=scores.perplexity.per_token,
        perplexity_per_char=scores.perplexity.per_char,
    )


def show_lines(display: Display, lines: int) -> Callable[[int], None]:
    """A callback for :func:`translate` that feeds ``display``."""
    started = time.monotonic()

    def update(done: int) -> None:
        elapsed = time.monotonic() - started
        # The first of a batch comes as late as all of it.
        left = elapsed / done * (lines - done) if done >= _FEWEST_SHARE * lines else None
        display.update(
            Progress(stage=RunState.EVALUATE, step=done, max_steps=lines, seconds_left=left)
        )

    return update
