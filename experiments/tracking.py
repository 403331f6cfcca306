"""Loggers of a run: W&B, TensorBoard or CSV."""

from __future__ import annotations

import csv
import shutil
from pathlib import Path
from typing import TYPE_CHECKING, Any

from experiments.records.experiment import Experiment, Log
from experiments.records.ownership import is_first_rank
from experiments.records.result import Result, valid_scores
from experiments.wandb_runs import finish, flat_config, log_samples, start_run
from transformer.config import to_dict
from transformer.errors import require

if TYPE_CHECKING:
    from lightning.pytorch.loggers import CSVLogger, Logger, TensorBoardLogger


class Tracking:
    """The loggers of one run, closed when the context is left; only the first rank tracks.

    Args:
        experiment: what is run
        directory: of the run
        log: where the figures go; ``none`` for ``metrics.csv`` alone
    """

    def __init__(self, experiment: Experiment, directory: Path, log: Log = "wandb") -> None:
        if log == "tensorboard":
            require("tensorboard", extra="tensorboard")
        self._experiment, self._directory = experiment, directory
        self._log: Log = log if is_first_rank() else "none"
        self._run = start_run(experiment, directory) if self._log == "wandb" else None
        self._files: TensorBoardLogger | CSVLogger | None = None

    def __enter__(self) -> Tracking:
        return self

    def __exit__(self, *_: object) -> None:
        if self._run is not None:
            finish(self._run)
        if self._files is not None:
            self._files.finalize("success")

    def loggers(self, resumed_step: int) -> list[Logger]:
        """Loggers for a Trainer that continues after ``resumed_step``; none if W&B could not be
        started.
        """
        if self._run is not None:
            from lightning.pytorch.loggers import WandbLogger

            return [WandbLogger(experiment=self._run)]
        if self._log == "tensorboard":
            self._files = _tensorboard(self._directory, resumed_step)
        elif self._log == "csv":
            self._files = _csv(self._directory, resumed_step)
        return [] if self._files is None else [self._files]

    def summarise(self, result: Result) -> None:
        """Log the result: W&B keeps all of it, the others its scores next to the settings."""
        if self._run is not None:
            self._run.summary.update(to_dict(result))
            log_samples(self._run, self._directory)
        if self._files is None:
            return
        from lightning.pytorch.loggers import TensorBoardLogger

        config = flat_config(self._experiment)
        scores: dict[str, Any] = valid_scores(result)
        if isinstance(self._files, TensorBoardLogger):
            self._files.log_hyperparams(config, scores, result.steps)
        else:
            self._files.log_metrics(scores, result.steps)
            self._files.log_hyperparams(config)
        self._files.save()


def _tensorboard(directory: Path, resumed_step: int) -> TensorBoardLogger:
    """Writes to ``tensorboard/``; TensorBoard hides the steps that are taken again."""
    from lightning.pytorch.loggers import TensorBoardLogger

    return TensorBoardLogger(
        directory,
        name=None,
        version="tensorboard",
        default_hp_metric=False,
        purge_step=resumed_step + 1,
    )


def _csv(directory: Path, resumed_step: int) -> CSVLogger:
    """Writes to ``csv/metrics.csv``, with the lines of an earlier session up to its checkpoint.

    Lightning's logger would delete them.
    """
    from lightning.pytorch.loggers import CSVLogger

    folder = directory / "csv"
    path = folder / "metrics.csv"
    earlier: list[dict[str, Any]] = []
    if path.is_file():
        with path.open(encoding="utf-8", newline="") as file:
            lines = [line for line in csv.DictReader(file) if (line["step"] or "").isdigit()]
        earlier = [
            {name: value for name, value in line.items() if value}
            for line in lines
            if int(line["step"]) <= resumed_step
        ]
    shutil.rmtree(folder, ignore_errors=True)
    logger = CSVLogger(directory, name="", version="csv", flush_logs_every_n_steps=1)
    logger.experiment.metrics = earlier
    logger.save()
    return logger
