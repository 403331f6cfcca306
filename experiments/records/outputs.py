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


def read_metrics(directory: Path) -> tuple[list[list[str]], int]:
    """The fields of each line of ``metrics.csv`` below the header, and how many lines were left
    out because a full disk, a power cut or a bad block damaged them or they are still being
    written.
    """
    try:
        content = (directory / METRICS_FILE).read_bytes()
    except FileNotFoundError:
        return [], 0
    *whole, last = content.decode(errors="replace").split("\n")
    lines = [line.removesuffix("\r") for line in whole[1:]]
    sound = [line.split(",") for line in lines if _LINE.fullmatch(line)]
    return sound, len(lines) - len(sound) + bool(last)


def valid_perplexities(directory: Path) -> dict[int, float]:
    """Perplexity on the validation set by step; empty before the first validation."""
    lines, _ = read_metrics(directory)
    return {int(line[0]): float(line[-1]) for line in lines if line[-1]}
