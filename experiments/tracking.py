"""Weights & Biases: offline without being asked for more, and never in the way of a run."""

from __future__ import annotations

import os
import threading
import warnings
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

from experiments.experiment import Experiment
from experiments.files import write_atomically
from experiments.provenance import commit
from experiments.ranks import is_first_rank
from experiments.results import Result
from transformer.config import to_dict

if TYPE_CHECKING:
    from lightning.pytorch.loggers.wandb import WandbLogger

PROJECT = "attention-is-all-you-need"
_ID_FILE = "wandb-id.txt"
_SERVER = "https://api.wandb.ai"
_PROBE_SECONDS = 3
_INIT_SECONDS = 10
_FINISH_SECONDS = 60


class Tracking:
    """The W&B run of one run of ours, the same one again after a resume. Leaving the context
    closes it; of several ranks only the first tracks.
    """

    def __init__(self, experiment: Experiment, directory: Path) -> None:
        self._run = _start(experiment, directory) if is_first_rank() else None

    def __enter__(self) -> Tracking:
        return self

    def __exit__(self, *_: object) -> None:
        """Close the run; wait for no dead network."""
        if self._run is not None:
            thread = threading.Thread(target=self._run.finish, daemon=True)
            thread.start()
            thread.join(_FINISH_SECONDS)
            if thread.is_alive():
                warnings.warn("W&B does not answer: sync its folder later", stacklevel=2)

    def loggers(self) -> list[WandbLogger]:
        """For a Trainer; none where W&B could not be started."""
        from lightning.pytorch.loggers.wandb import WandbLogger

        return [] if self._run is None else [WandbLogger(experiment=self._run)]

    def summarise(self, result: Result) -> None:
        """Write the result into the run's summary."""
        if self._run is not None:
            self._run.summary.update(to_dict(result))


def _start(experiment: Experiment, directory: Path) -> Any:
    """The W&B run: offline where it cannot be online, None where it cannot be at all."""
    import wandb

    for mode in dict.fromkeys((tracking_mode(), "offline")):
        try:
            wandb.setup(wandb.Settings(silent=True))
            run = wandb.init(
                project=os.environ.get("WANDB_PROJECT", PROJECT),
                name=f"{experiment.name}-seed{experiment.config.training.seed}",
                id=_run_id(directory),
                dir=str(directory),
                group=experiment.group,
                job_type="train",
                tags=list(experiment.tags),
                config={
                    "experiment": experiment.name,
                    "commit": commit(),
                    **to_dict(experiment.config),
                },
                mode=cast(Any, mode),
                resume="allow",
                reinit="create_new",
                settings=wandb.Settings(console="off", init_timeout=_INIT_SECONDS),
            )
        except Exception as error:  # a wrong setting, key or answer: training goes on all the same
            reason = " ".join(str(error).split())
            warnings.warn(f"W&B does not start in mode {mode}: {reason}", stacklevel=2)
            wandb.teardown()  # else its service holds on to the id
        else:
            run.define_metric("*", step_metric="trainer/global_step", step_sync=True)
            return run
    return None


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
        write_atomically(path, os.urandom(4).hex() + "\n")
    return path.read_text(encoding="utf-8").strip()
