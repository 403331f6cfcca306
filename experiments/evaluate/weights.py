"""The trained model of a directory, be it a run's or an export's."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import torch

from experiments.evaluate.scoring import choose_checkpoints, load_model
from experiments.run.data import run_vocabulary
from experiments.run.devices import default_device
from experiments.run.experiment import Experiment, load_experiment
from transformer.data.vocabulary import Vocabulary
from transformer.errors import InputError
from transformer.model.encoder_decoder import Transformer
from transformer.pretrained import WEIGHTS_FILE, load_weights


@dataclass(frozen=True, kw_only=True, slots=True)
class Trained:
    """A trained model with what belongs to it; ``averaged`` checkpoints are in its weights."""

    experiment: Experiment
    model: Transformer
    vocabulary: Vocabulary
    averaged: int


def load_trained(
    directory: Path | str, average: int | None = None, *, device: torch.device | None = None
) -> Trained:
    """The model with the mean of the last ``average`` checkpoints; if None as configured.

    Args:
        device: where it is wanted; None takes a GPU where there is one

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
        model, averaged = load_model(experiment, checkpoints, device=device), len(checkpoints)
    return Trained(
        experiment=experiment,
        model=model,
        vocabulary=run_vocabulary(directory),
        averaged=averaged,
    )
