"""``metrics.csv`` read back, by whoever must not import torch."""

from __future__ import annotations

import csv
from contextlib import suppress
from pathlib import Path

METRICS_FILE = "metrics.csv"


def valid_perplexities(directory: Path) -> dict[int, float]:
    """Perplexity on the validation set by step; none where the run in ``directory`` has none yet.

    A line that is still being written is left out.
    """
    try:
        text = (directory / METRICS_FILE).read_text(encoding="utf-8")
    except FileNotFoundError:
        return {}
    found: dict[int, float] = {}
    whole = text[: text.rfind("\n") + 1]
    for line in csv.DictReader(whole.splitlines()):
        with suppress(TypeError, ValueError):  # empty, as in the lines of training steps
            found[int(line["step"])] = float(line["valid_perplexity"])
    return found
