"""Weights & Biases: offline without being asked for more, and never in the way of a run."""

from __future__ import annotations

import os
import threading
import warnings
from pathlib import Path
from typing import TYPE_CHECKING, Any

from experiments.experiment import Experiment
from experiments.provenance import commit
from experiments.results import Result
from transformer.config import to_dict

if TYPE_CHECKING:
    from lightning.pytorch.loggers.wandb import WandbLogger

PROJECT = "attention-is-all-you-need"
_ID_FILE = "wandb-id.txt"
_SERVER = "https://api.wandb.ai"
_PROBE_SECONDS = 3
_FINISH_SECONDS = 60


class Tracking:
    """The W&B run of one run of ours; the same one again after a resume."""

    def __init__(self, experiment: Experiment, directory: Path) -> None:
        import wandb
        from lightning.pytorch.loggers.wandb import WandbLogger

        self.logger: WandbLogger = WandbLogger(
            project=os.environ.get("WANDB_PROJECT", PROJECT),
            name=f"{experiment.name}-seed{experiment.config.training.seed}",
            id=_run_id(directory),
            save_dir=str(directory),
            group=experiment.group,
            job_type="train",
            tags=list(experiment.tags),
            config={
                "experiment": experiment.name,
                "commit": commit(),
                **to_dict(experiment.config),
            },
            mode=tracking_mode(),
            resume="allow",
            settings=wandb.Settings(silent=True, console="off", init_timeout=30),
        )

    def finish(self, result: Result | None = None) -> None:
        """Write the result into the run's summary and close it; wait for no dead network."""

        def close() -> None:
            run: Any = self.logger.experiment
            if result is not None:
                run.summary.update(to_dict(result))
            run.finish()

        thread = threading.Thread(target=close, daemon=True)
        thread.start()
        thread.join(_FINISH_SECONDS)
        if thread.is_alive():
            warnings.warn("W&B does not answer: sync its folder later", stacklevel=2)


def tracking_mode() -> str:
    """``offline`` unless ``WANDB_MODE`` or an ``WANDB_API_KEY`` says otherwise.

    Decided before W&B is started: a start that fails for want of a network takes minutes.
    """
    mode = os.environ.get("WANDB_MODE") or (
        "online" if os.environ.get("WANDB_API_KEY") else "offline"
    )
    if mode == "online" and not _answers(os.environ.get("WANDB_BASE_URL") or _SERVER):
        warnings.warn("W&B's server does not answer: tracking offline", stacklevel=2)
        return "offline"
    return mode


def _answers(server: str) -> bool:
    import requests

    try:
        requests.head(server, timeout=_PROBE_SECONDS)
    except requests.RequestException:
        return False
    return True


def _run_id(directory: Path) -> str:
    path = directory / _ID_FILE
    if not path.exists():
        path.write_text(os.urandom(4).hex() + "\n", encoding="utf-8")
    return path.read_text(encoding="utf-8").strip()
