"""``metrics.csv``: one line for each logged step, for any spreadsheet."""

from __future__ import annotations

import csv
import io
from pathlib import Path
from typing import Any

import lightning.pytorch as lightning

from experiments.curve import METRICS_FILE
from experiments.files import write_atomically
from experiments.ranks import is_first_rank
from experiments.steps import completes_step

_TRAINING: tuple[str, ...] = ("loss", "perplexity", "learning_rate", "gradient_norm")
_VALIDATION: tuple[str, ...] = ("valid_loss", "valid_perplexity")
_COLUMNS: tuple[str, ...] = ("step", *_TRAINING, *_VALIDATION)


class MetricsCsv(lightning.Callback):
    """Appends a line as soon as it is known. Lines from after the step at which a run is resumed
    are dropped first, so that no step stands twice.

    A callback rather than a logger of Lightning's, which would come after the checkpoint of the
    step: a run killed in between would lack the line for ever.
    """

    def __init__(self, directory: Path, *, every: int, resumed_step: int) -> None:
        self._path = directory / METRICS_FILE
        self._every = every
        if is_first_rank():
            self._keep_until(resumed_step)

    def on_train_batch_end(self, trainer: lightning.Trainer, *args: Any, **kwargs: Any) -> None:
        """Write the figures of a logged step."""
        if completes_step(trainer) and trainer.global_step % self._every == 0:
            self._append(trainer, _TRAINING)

    def on_validation_end(self, trainer: lightning.Trainer, *args: Any, **kwargs: Any) -> None:
        """Write those of a validation."""
        self._append(trainer, _VALIDATION)

    def _append(self, trainer: lightning.Trainer, names: tuple[str, ...]) -> None:
        if trainer.is_global_zero:
            line = {name: f"{float(trainer.callback_metrics[name]):.6g}" for name in names}
            with self._path.open("a", encoding="utf-8", newline="") as file:
                csv.DictWriter(file, _COLUMNS).writerow({"step": trainer.global_step} | line)

    def _keep_until(self, step: int) -> None:
        text = self._path.read_text(encoding="utf-8") if self._path.exists() else ""
        whole = text[: text.rfind("\n") + 1]  # a full disk may have cut the last line
        rows = csv.DictReader(io.StringIO(whole))
        kept = io.StringIO(newline="")
        writer = csv.DictWriter(kept, _COLUMNS)
        writer.writeheader()
        writer.writerows(row for row in rows if int(row["step"]) <= step)
        write_atomically(self._path, kept.getvalue())
