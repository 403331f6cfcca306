"""Scores of a run's model on a split, or on any text, and its translations."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import torch

from experiments.checkpoints import to_average
from experiments.display import Display
from experiments.experiment import Experiment
from experiments.files import write_atomically
from experiments.progress import Progress
from transformer.config import DecodingConfig
from transformer.data.module import TranslationDataModule
from transformer.errors import InputError
from transformer.evaluation import Bleu, Perplexity, bleu, perplexity, translate
from transformer.model.encoder_decoder import Transformer
from transformer.training.averaging import average_weights
from transformer.training.module import TransformerModule


@dataclass(frozen=True, kw_only=True, slots=True)
class SplitScores:
    """BLEU and perplexity of one split."""

    bleu: Bleu
    perplexity: Perplexity


def load_model(
    experiment: Experiment, directory: Path, *, device: torch.device, average: int | None = None
) -> Transformer:
    """The model of the last ``average`` checkpoints; as many as configured if None.

    Raises:
        InputError: if the run has no checkpoint, or fewer than asked for.
    """
    training = experiment.config.training
    wanted = average or training.average_checkpoints
    paths = to_average(directory, wanted, training.checkpoint_every_steps)
    if not paths:
        raise InputError(f"{directory} has no checkpoint yet: train it first")
    if average is not None and len(paths) < average:
        raise InputError(
            f"{directory} keeps {len(paths)} checkpoints, {average} are to be averaged: "
            "train with average_checkpoints set to as many"
        )
    module = TransformerModule(experiment.config)
    module.load_state_dict(average_weights(paths))
    return module.model.to(device).eval()


def score_split(
    model: Transformer,
    data: TranslationDataModule,
    split: str,
    directory: Path,
    display: Display,
    decoding: DecodingConfig | None = None,
) -> SplitScores:
    """Score ``valid`` or ``test`` and write the hypotheses to ``SPLIT.hypotheses.txt``."""
    corpus = data.corpus
    source, reference = corpus.text(split)
    display.start("evaluate")
    hypotheses = translate(
        model,
        corpus.vocabulary(),
        source,
        decoding or data.config.decoding,
        on_progress=show_lines(display, len(source)),
    )
    write_atomically(directory / f"{split}.hypotheses.txt", "".join(f"{x}\n" for x in hypotheses))
    return SplitScores(
        bleu=bleu(hypotheses, reference),
        perplexity=perplexity(model, data.evaluation_loader(split), reference),
    )


def show_lines(display: Display, lines: int) -> Callable[[int], None]:
    """A callback for :func:`translate` that feeds ``display``."""
    started = time.monotonic()

    def update(done: int) -> None:
        elapsed = time.monotonic() - started
        left = elapsed / done * (lines - done)
        display.update(Progress(stage="evaluate", step=done, max_steps=lines, seconds_left=left))

    return update
