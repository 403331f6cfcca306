"""A run's ``metrics.csv``, translations and samples."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path

from transformer.config import from_dict
from transformer.files import read_json

METRICS_FILE = "metrics.csv"
TRAINING_COLUMNS: tuple[str, ...] = ("loss", "train_perplexity", "learning_rate", "gradient_norm")
VALIDATION_COLUMNS: tuple[str, ...] = ("valid_loss", "valid_perplexity")
COLUMNS: tuple[str, ...] = ("step", *TRAINING_COLUMNS, *VALIDATION_COLUMNS)

_NUMBER = r"-?(\d+(\.\d+)?(e[-+]\d+)?|inf|nan)"
_LINE = re.compile(rf"\d+(,({_NUMBER})?){{{len(COLUMNS) - 1}}}")


def hypotheses_path(directory: Path, split: str) -> Path:
    """Where the run in ``directory`` writes its translations of ``split``."""
    return directory / f"{split}.hypotheses.txt"


@dataclass(frozen=True, kw_only=True, slots=True)
class Sample:
    """A translation, and how much of it is in the reference: sentence chrF in per cent."""

    chrf: float
    source: str
    reference: str
    translation: str


@dataclass(frozen=True, slots=True)
class _Samples:
    samples: tuple[Sample, ...]


def samples_path(directory: Path, split: str) -> Path:
    """Where the run in ``directory`` writes its best and worst translations of ``split``."""
    return directory / f"{split}.samples.json"


def read_samples(directory: Path, split: str) -> list[Sample]:
    """The best and worst translations of ``split``, best first; empty if there are none."""
    path = samples_path(directory, split)
    if not path.is_file():
        return []
    return list(from_dict(_Samples, read_json(path), str(path)).samples)


def read_metrics(directory: Path) -> list[list[str]]:
    """The fields of each line of ``metrics.csv`` below the header.

    Lines are left out that a full disk or a power cut damaged, or that are still being written.
    """
    try:
        content = (directory / METRICS_FILE).read_bytes()
    except FileNotFoundError:
        return []
    lines = content.decode(errors="replace").replace("\r\n", "\n").split("\n")
    return [line.split(",") for line in lines[1:-1] if _LINE.fullmatch(line)]


def training_losses(directory: Path) -> dict[int, float]:
    """The training loss by step; empty before the first logged step."""
    return {int(line[0]): float(line[1]) for line in read_metrics(directory) if line[1]}


def valid_perplexities(directory: Path) -> dict[int, float]:
    """Perplexity on the validation set by step; empty before the first validation."""
    return {int(line[0]): float(line[-1]) for line in read_metrics(directory) if line[-1]}
