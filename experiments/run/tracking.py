"""Weights & Biases: offline unless asked for more, and never in the way of a run."""

from __future__ import annotations

import os
import threading
import warnings
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

from experiments.run.attempt import WANDB_ID_FILE, read_attempt, wandb_id
from experiments.run.devices import is_first_rank
from experiments.run.experiment import Experiment
from experiments.run.files import write_atomically
from experiments.run.provenance import commit
from experiments.run.results import Result
from transformer.config import to_dict

if TYPE_CHECKING:
    from lightning.pytorch.loggers.wandb import WandbLogger

PROJECT = "attention-is-all-you-need"
_SERVER = "https://api.wandb.ai"
_PROBE_SECONDS = 3
_INIT_SECONDS = 10
_FINISH_SECONDS = 60


class Tracking:
    """The W&B run of one of our runs, closed when the context is left; only the first rank tracks.

    A resumed run continues the same W&B run. If other workers may take the run over, each attempt
    has a W&B run of its own, which names the one before.
    """

    def __init__(self, experiment: Experiment, directory: Path) -> None:
        self._run = _start_run(experiment, directory) if is_first_rank() else None

    def __enter__(self) -> Tracking:
        return self

    def __exit__(self, *_: object) -> None:
        """Close the run without waiting for a dead network."""
        if self._run is not None:
            _finish(self._run)

    def loggers(self) -> list[WandbLogger]:
        """Loggers for a Trainer; none if W&B could not be started."""
        from lightning.pytorch.loggers.wandb import WandbLogger

        return [] if self._run is None else [WandbLogger(experiment=self._run)]

    def summarise(self, result: Result) -> None:
        """Write the result into the run's summary."""
        if self._run is not None:
            self._run.summary.update(to_dict(result))


def track_table(
    directory: Path,
    name: str,
    columns: Sequence[str],
    rows: Sequence[Sequence[object]],
    config: Mapping[str, object],
) -> None:
    """Log a whole table to one W&B run, the same at each call; failures become warnings.

    Args:
        directory: the table's, where the run's id is kept
        name: of the run
        columns: headings
        rows: a cell for each column: text, a number, or None
        config: what the table is made of, in types that JSON can hold
    """
    run = _start(directory, _kept_id(directory), name=name, job_type="table", config=dict(config))
    if run is None:
        return
    import wandb

    try:
        data = [list(row) for row in rows]
        table = wandb.Table(columns=list(columns), data=data, allow_mixed_types=True)
        run.log({"table": table})
    except Exception as error:
        warnings.warn(f"W&B does not take the table: {_one_line(error)}", stacklevel=2)
    _finish(run)


def _start_run(experiment: Experiment, directory: Path) -> Any:
    name = f"{experiment.name}-seed{experiment.config.training.seed}"
    config = {"experiment": experiment.name, "commit": commit(), **to_dict(experiment.config)}
    attempt = read_attempt(directory)
    if attempt is None:
        run_id = _kept_id(directory)
    else:
        run_id = _new_id(directory)
        name = f"{name}-attempt{attempt.number}"
        config |= {
            "study": attempt.study,
            "cell": attempt.cell,
            "attempt": attempt.number,
            "host": attempt.host,
            "resumed_from": attempt.wandb_ids[-1] if attempt.wandb_ids else None,
        }
    run = _start(
        directory,
        run_id,
        name=name,
        group=experiment.group,
        job_type="train",
        tags=list(experiment.tags),
        config=config,
    )
    if run is not None:
        run.define_metric("*", step_metric="trainer/global_step", step_sync=True)
    return run


def _start(directory: Path, run_id: str, **settings: Any) -> Any:
    """Start a W&B run: offline if it cannot be online, None if it cannot start at all."""
    import wandb

    for mode in dict.fromkeys((tracking_mode(), "offline")):
        try:
            wandb.setup(wandb.Settings(silent=True))
            return wandb.init(
                project=os.environ.get("WANDB_PROJECT", PROJECT),
                id=run_id,
                dir=str(directory),
                mode=cast(Any, mode),
                resume="allow",
                reinit="create_new",
                settings=wandb.Settings(console="off", init_timeout=_INIT_SECONDS),
                **settings,
            )
        except Exception as error:  # a wrong setting, key or answer must not stop training
            reason = _one_line(error)
            warnings.warn(f"W&B does not start in mode {mode}: {reason}", stacklevel=2)
            wandb.teardown()  # otherwise its service keeps the id in use
    return None


def _finish(run: Any) -> None:
    thread = threading.Thread(target=run.finish, daemon=True)
    thread.start()
    thread.join(_FINISH_SECONDS)
    if thread.is_alive():
        warnings.warn("W&B does not answer: sync its folder later", stacklevel=3)


def _one_line(error: Exception) -> str:
    return " ".join(str(error).split())


def tracking_mode() -> str:
    """``offline`` unless ``WANDB_MODE`` or ``WANDB_API_KEY`` says otherwise.

    Checked before W&B starts, because a start without a network takes minutes to fail.
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


def _kept_id(directory: Path) -> str:
    return wandb_id(directory) or _new_id(directory)


def _new_id(directory: Path) -> str:
    run_id = os.urandom(4).hex()
    write_atomically(directory / WANDB_ID_FILE, f"{run_id}\n")
    return run_id
