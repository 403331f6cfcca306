"""Track runs with W&B, by default offline, or with TensorBoard."""

from __future__ import annotations

import os
import threading
import warnings
from collections.abc import Callable, Mapping, Sequence
from contextlib import chdir, suppress
from dataclasses import astuple, fields
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

from experiments.records.attempt import WANDB_ID_FILE, read_attempt, wandb_id
from experiments.records.experiment import Experiment, Log
from experiments.records.outputs import Sample, read_samples
from experiments.records.ownership import is_first_rank
from experiments.records.provenance import commit
from experiments.records.result import Result, valid_scores
from transformer.config import to_dict
from transformer.errors import require, without_secrets
from transformer.files import within, write_atomically

if TYPE_CHECKING:
    from lightning.pytorch.loggers import Logger, TensorBoardLogger

# Lightning's name for the step of a metric.
STEP = "trainer/global_step"
_PROBE_SECONDS = 3
_INIT_SECONDS = 10
_FINISH_SECONDS = 60


class Tracking:
    """The logger of one run; only the first rank tracks."""

    def __init__(self, experiment: Experiment, directory: Path, log: Log = "wandb") -> None:
        if log == "tensorboard":
            require("tensorboard", extra="tensorboard")
        self._experiment, self._directory = experiment, directory
        self._log: Log = log if is_first_rank() else "none"
        self._run = _start_run(experiment, directory) if self._log == "wandb" else None
        self._board: TensorBoardLogger | None = None

    def close(self) -> None:
        """End what was started."""
        if self._run is not None:
            _finish(self._run)
        if self._board is not None:
            self._board.finalize("success")

    def loggers(self, resumed_step: int) -> list[Logger]:
        """Loggers for a Trainer that begins after ``resumed_step``; none if W&B did not start."""
        if self._run is not None:
            from lightning.pytorch.loggers import WandbLogger

            tell = self._tell

            class Forgiving(WandbLogger):
                def log_metrics(
                    self, metrics: Mapping[str, float], step: int | None = None
                ) -> None:
                    log = super().log_metrics
                    tell(lambda _: log(metrics, step))

            return [Forgiving(experiment=self._run)]
        if self._log != "tensorboard":
            return []
        from lightning.pytorch.loggers import TensorBoardLogger

        within(self._directory, "tensorboard")
        self._board = TensorBoardLogger(
            self._directory,
            name=None,
            version="tensorboard",
            default_hp_metric=False,
            purge_step=resumed_step + 1,  # TensorBoard hides the steps that are taken again
        )
        return [self._board]

    def summarise(self, result: Result) -> None:
        """Log the result in W&B, or its scores next to the settings in TensorBoard."""
        self._tell(lambda run: run.summary.update(to_dict(result)))
        self._tell(lambda run: _log_samples(run, self._directory))
        if self._board is not None:
            scores: dict[str, Any] = valid_scores(result)
            self._board.log_hyperparams(_flat_config(self._experiment), scores, result.steps)
            self._board.save()

    def _tell(self, call: Callable[[Any], object]) -> None:
        """Call W&B with its run; once it fails, training continues without it."""
        if self._run is None:
            return
        try:
            call(self._run)
        except Exception as error:
            self._run = None
            _abandon()
            warnings.warn(
                f"W&B failed, so it gets no more of this run: {one_line(error)}", stacklevel=2
            )


def _log_samples(run: Any, directory: Path) -> None:
    """Log the best and worst translations of each split as a table, best first."""
    import wandb

    columns = [field.name for field in fields(Sample)]
    for split in ("valid", "test"):
        if samples := read_samples(directory, split):
            table = wandb.Table(columns=[*columns], data=[list(astuple(x)) for x in samples])
            run.log({f"samples/{split}": table})


def _flat_config(experiment: Experiment) -> dict[str, Any]:
    """The settings of an experiment without nesting, to filter and group runs by."""
    sections = to_dict(experiment.config)
    corpus = sections["data"].pop("corpus")["name"]
    settings = {name: value for section in sections.values() for name, value in section.items()}
    named = {"experiment": experiment.name, "corpus": corpus, "commit": commit()}
    return named | settings | experiment.labels


def _start_run(experiment: Experiment, directory: Path) -> Any:
    """Start a W&B run; None, with a warning, if that fails.

    A resumed run continues its W&B run. If other attempts may take the run over, each has a W&B run
    of its own, which names the one before.
    """
    name = f"{experiment.name}-seed{experiment.config.training.seed}"
    config = _flat_config(experiment)
    if (attempt := read_attempt(directory)) is not None:
        name = f"{name}-attempt{attempt.number}"
        config |= {"cell": attempt.cell, "attempt": attempt.number, "host": attempt.host}
        config["resumed_from"] = wandb_id(directory)
    run = _start(
        directory,
        new=attempt is not None,
        name=name,
        group=experiment.group,
        job_type="train",
        tags=experiment.tags,
        config=config,
    )
    if run is None:
        return None
    try:
        run.define_metric("*", step_metric=STEP, step_sync=True)
        run.define_metric("tokens_seen", step_metric=STEP, summary="max")  # the other axis
        run.summary.update({f"paper/{name}": x for name, x in experiment.reported.items()})
    except Exception as error:
        _abandon()
        warnings.warn(f"W&B does not take the run: {one_line(error)}", stacklevel=2)
        return None
    return run


def track_table(
    directory: Path,
    columns: Sequence[str],
    rows: Sequence[Sequence[object]],
    figures: Mapping[str, Path],
    *,
    offline: bool = False,
    **settings: Any,
) -> None:
    """Log a whole table to one W&B run, the same at each call; failures become warnings.

    Args:
        directory: the table's, where the run's id is kept
        rows: a cell for each column, all of a column text or all numbers; None if unknown
        offline: send nothing, whatever the environment says
        settings: of ``wandb.init``, such as the run's name
    """
    run = _start(directory, offline=offline, job_type="table", **settings)
    if run is None:
        return
    import wandb

    try:
        images = {f"figures/{name}": wandb.Image(str(path)) for name, path in figures.items()}
        table = wandb.Table(columns=list(columns), data=[list(row) for row in rows])
        run.log({"table": table, **images})
    except Exception as error:
        warnings.warn(f"W&B does not take the table: {one_line(error)}", stacklevel=2)
    _finish(run)


def _start(directory: Path, *, new: bool = False, offline: bool = False, **settings: Any) -> Any:
    """Start or resume a W&B run: offline if it cannot be online, None if it cannot start at all.

    Args:
        new: begin another W&B run than the one whose id is in ``directory``
        settings: of ``wandb.init``; ``tags`` is needed
    """
    if not offline and os.environ.get("WANDB_MODE") == "disabled":
        return None
    import wandb

    within(directory, "wandb")
    run_id = wandb_id(directory)
    if run_id is None or new:
        run_id = os.urandom(4).hex()
        write_atomically(directory / WANDB_ID_FILE, f"{run_id}\n")
    settings["tags"] = [tag[:64] for tag in settings["tags"]]  # W&B takes no longer ones
    for mode in dict.fromkeys(("offline" if offline else _mode(), "offline")):
        try:
            set_up(mode)
            return wandb.init(
                project=project(),
                id=run_id,
                dir=str(directory.absolute()),  # W&B may work in another folder
                mode=cast(Any, mode),
                resume="allow",
                reinit="create_new",
                settings=wandb.Settings(console="off", init_timeout=_INIT_SECONDS),
                **settings,
            )
        except Exception as error:  # a wrong setting, key or answer must not stop training
            warnings.warn(f"W&B does not start in mode {mode}: {one_line(error)}", stacklevel=2)
            _abandon()
    return None


def _mode() -> str:
    """The mode of tracking; offline, with a warning, if W&B's settings cannot be read."""
    try:
        return tracking_mode()
    except Exception as error:
        warnings.warn(f"W&B's settings cannot be read: {one_line(error)}", stacklevel=2)
        return "offline"


def set_up(mode: str) -> Any:
    """Start W&B's library and its service; if ``mode`` is offline, they send nothing.

    Their settings come from the environment and the user's own file. W&B would also read
    ``wandb/settings`` in the working directory, which may be somebody else's, and send the user's
    key to the server that is named there.
    """
    import wandb

    for name in [name for name, value in os.environ.items() if not value]:
        if name.startswith("WANDB_"):  # empty is unset, but W&B takes it for a value
            del os.environ[name]
    os.environ.setdefault("WANDB_ERROR_REPORTING", "false")  # or it reports how it is used
    with chdir("/"):
        return wandb.setup(wandb.Settings(silent=True, mode=cast(Any, mode)))


def _abandon() -> None:
    """End W&B's service, which keeps the run's id in use, and its hooks at import and exit."""
    import wandb

    with suppress(Exception, SystemExit):
        wandb.teardown()


def _finish(run: Any) -> None:
    """Close a W&B run without waiting for a dead network."""
    errors: list[Exception] = []

    def finish() -> None:
        try:
            run.finish()
        except Exception as error:
            errors.append(error)

    thread = threading.Thread(target=finish, daemon=True)
    thread.start()
    thread.join(_FINISH_SECONDS)
    if errors:
        _abandon()
    if thread.is_alive() or errors:
        warnings.warn("W&B does not answer: sync its folder later", stacklevel=3)


def one_line(error: Exception) -> str:
    """The message of an error without line breaks, and without the password of a proxy."""
    return without_secrets(" ".join(str(error).split()))


def project() -> str:
    """The W&B project of all runs."""
    return os.environ.get("WANDB_PROJECT") or "attention-is-all-you-need"


def tracking_mode() -> str:
    """``offline`` unless ``WANDB_MODE`` or ``WANDB_API_KEY`` says otherwise.

    The server is asked before W&B starts, because a start without a network takes minutes to fail.
    """
    by_key = "online" if os.environ.get("WANDB_API_KEY") else "offline"
    mode = os.environ.get("WANDB_MODE") or by_key
    if mode == "online" and not answers(server()):
        warnings.warn("W&B's server does not answer: tracking offline", stacklevel=2)
        return "offline"
    return mode


def server() -> str:
    """The address of W&B's server."""
    return os.environ.get("WANDB_BASE_URL") or set_up("offline").settings.base_url


def answers(server: str) -> bool:
    """Whether a server answers within seconds."""
    import requests

    try:
        requests.head(server, timeout=_PROBE_SECONDS)
        return True
    except requests.RequestException:
        return False
