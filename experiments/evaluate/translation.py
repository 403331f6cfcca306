"""Loading a trained model from a directory, and translating with it."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import IO

import torch

from experiments.callbacks.checkpoints import has_checkpoints, to_average
from experiments.run.data import run_vocabulary
from experiments.run.devices import default_device
from experiments.run.experiment import Experiment, load_experiment
from transformer.config import DecodingConfig, override
from transformer.data.text import decode_line
from transformer.data.vocabulary import Vocabulary
from transformer.errors import InputError, require
from transformer.evaluation.perplexity import Decode, translate
from transformer.model.encoder_decoder import Transformer
from transformer.pretrained import WEIGHTS_FILE, load_weights
from transformer.training.averaging import average_weights
from transformer.training.module import TransformerModule

# Lines of standard input that are translated at a time.
_LINES_AT_ONCE = 512


@dataclass(frozen=True, kw_only=True, slots=True)
class TrainedModel:
    """A trained model with its experiment and vocabulary; ``averaged`` counts the checkpoints in
    its weights.
    """

    experiment: Experiment
    model: Transformer
    vocabulary: Vocabulary
    averaged: int


@dataclass(frozen=True, kw_only=True, slots=True)
class DecodingOptions:
    """What a user may change for one evaluation or translation; None keeps the experiment's value.

    ``average`` is as for :func:`load_trained`; ``engine`` is ``torch`` or ``ctranslate2``.
    """

    average: int | None = None
    beam_size: int | None = None
    length_penalty: float | None = None
    engine: str = "torch"


def load_trained(
    directory: Path | str, average: int | None = None, *, device: torch.device | None = None
) -> TrainedModel:
    """Load the model of a run or of an export as safetensors.

    Args:
        average: how many of the last checkpoints to average; None for as many as configured
        device: None takes a GPU if there is one

    Raises:
        InputError: if the directory holds no model, or not enough checkpoints.
    """
    directory, device = Path(directory), device or default_device()
    experiment = load_experiment(directory)
    if (directory / WEIGHTS_FILE).is_file():
        if average is not None:
            raise InputError(f"{directory} is an export and holds no checkpoints to average")
        model, averaged = load_weights(experiment.config.model, directory).to(device), 1
    else:
        checkpoints = choose_checkpoints(experiment, directory, average)
        model, averaged = load_average(experiment, checkpoints, device), len(checkpoints)
    vocabulary = run_vocabulary(directory)
    return TrainedModel(
        experiment=experiment, model=model, vocabulary=vocabulary, averaged=averaged
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


def load_average(
    experiment: Experiment, checkpoints: list[Path], device: torch.device
) -> Transformer:
    """The model with the mean of the checkpoints' weights."""
    module = TransformerModule(experiment.config)
    module.load_state_dict(average_weights(checkpoints))
    return module.model.to(device).eval()


def open_decoder(
    directory: Path, options: DecodingOptions
) -> tuple[TrainedModel, DecodingConfig, Decode | None]:
    """The model of ``directory``, how it decodes, and the search if it is not our own.

    Raises:
        InputError: if the run cannot be used, or the engine is not installed.
    """
    changes = {"beam_size": options.beam_size, "length_penalty": options.length_penalty}
    given = {name: value for name, value in changes.items() if value is not None}
    decoding = override(load_experiment(directory).config, **given).decoding
    trained = load_trained(directory, options.average)
    decode = open_ctranslate2(trained, decoding) if options.engine == "ctranslate2" else None
    return trained, decoding, decode


def open_ctranslate2(
    trained: TrainedModel, decoding: DecodingConfig, folder: Path | None = None
) -> Decode:
    """The search by CTranslate2 with the weights of ``trained``, or of its export in ``folder``.

    Raises:
        InputError: if CTranslate2 is not installed.
    """
    require("ctranslate2")
    from experiments.export.ctranslate2_engine import CTranslate2Decoder

    return CTranslate2Decoder(trained.model, trained.vocabulary, decoding, folder=folder).decode


def translate_stream(
    directory: Path, stream: IO[bytes], options: DecodingOptions | None = None
) -> Iterator[str]:
    """Translate each line, in order, some hundred lines at a time.

    Raises:
        InputError: if the run cannot be used, or a line is not UTF-8.
    """
    trained, decoding, decode = open_decoder(directory, options or DecodingOptions())
    lines = (
        decode_line(line.removesuffix(b"\n").removesuffix(b"\r"), "standard input", number)
        for number, line in enumerate(stream, start=1)
    )
    while chunk := list(itertools.islice(lines, _LINES_AT_ONCE)):
        yield from translate(trained.model, trained.vocabulary, chunk, decoding, decode=decode)
