"""``metrics.csv``: one line for each logged step, for any spreadsheet."""

from __future__ import annotations

import csv
import io
from pathlib import Path
from typing import Any

from lightning.pytorch.loggers.logger import Logger

from experiments.files import write_atomically
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
        text = self._path.read_text(encoding="utf-8") if self._path.exists() else ""
        whole = text[: text.rfind("\n") + 1]  # a full disk may have cut the last line
        rows = csv.DictReader(io.StringIO(whole))
        kept = io.StringIO(newline="")
        writer = csv.DictWriter(kept, _COLUMNS)
        writer.writeheader()
        writer.writerows(row for row in rows if int(row["step"]) <= step)
        write_atomically(self._path, kept.getvalue())
