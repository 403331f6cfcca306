"""``metrics.csv`` read back, by whoever must not import torch."""

from __future__ import annotations

import re
from pathlib import Path

METRICS_FILE = "metrics.csv"
TRAINING_COLUMNS: tuple[str, ...] = ("loss", "train_perplexity", "learning_rate", "gradient_norm")
VALIDATION_COLUMNS: tuple[str, ...] = ("valid_loss", "valid_perplexity")
COLUMNS: tuple[str, ...] = ("step", *TRAINING_COLUMNS, *VALIDATION_COLUMNS)

_NUMBER = r"-?(\d+(\.\d+)?(e[-+]\d+)?|inf|nan)"
_LINE = re.compile(rf"\d+(,({_NUMBER})?){{{len(COLUMNS) - 1}}}")


def read_metrics(directory: Path) -> tuple[list[list[str]], int]:
    """The fields of each line below the header, and the number of lines left out: those that a
    full disk, a power cut or a bad block has damaged, or that are still being written.
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
    """Perplexity on the validation set by step; empty before the run in ``directory`` has one."""
    lines, _ = read_metrics(directory)
    return {int(line[0]): float(line[-1]) for line in lines if line[-1]}
