"""``metrics.csv``: one line for each logged step, for any spreadsheet."""

from __future__ import annotations

import csv
from pathlib import Path
from typing import Any

from lightning.pytorch.loggers.logger import Logger

from experiments.ranks import is_first_rank

METRICS_FILE = "metrics.csv"
_COLUMNS: tuple[str, ...] = (
    "step",
    "loss",
    "perplexity",
    "learning_rate",
    "gradient_norm",
    "valid_loss",
    "valid_perplexity",
)


class MetricsCsv(Logger):
    """Appends a line as soon as it is logged. Lines from after the step at which a run is resumed
    are dropped first, so that no step stands twice.
    """

    def __init__(self, directory: Path, resumed_step: int) -> None:
        super().__init__()
        self._path = directory / METRICS_FILE
        if is_first_rank():
            self._keep_until(resumed_step)

    @property
    def name(self) -> str:
        """Of this logger."""
        return "metrics"

    @property
    def version(self) -> str:
        """One for each directory."""
        return ""

    def log_hyperparams(self, *args: Any, **kwargs: Any) -> None:
        """Nothing: ``config.json`` holds them."""

    def log_metrics(self, metrics: dict[str, float], step: int | None = None) -> None:
        """Append those metrics that have a column."""
        line = {name: f"{value:.6g}" for name, value in metrics.items() if name in _COLUMNS}
        if line and is_first_rank():
            with self._path.open("a", encoding="utf-8", newline="") as file:
                csv.DictWriter(file, _COLUMNS).writerow({"step": (step or 0) + 1} | line)

    def _keep_until(self, step: int) -> None:
        kept: list[dict[str, str]] = []
        if self._path.exists():
            with self._path.open(encoding="utf-8", newline="") as file:
                kept = [r for r in csv.DictReader(file) if (r["step"] or "x").isdigit()]
        with self._path.open("w", encoding="utf-8", newline="") as file:
            writer = csv.DictWriter(file, _COLUMNS, extrasaction="ignore")
            writer.writeheader()
            writer.writerows(row for row in kept if int(row["step"]) <= step)
