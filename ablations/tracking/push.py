"""Push tables and offline runs to W&B."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path

from ablations.files import FIGURES
from ablations.report.numbers import compute_numbers
from ablations.report.report import lines_of_runs
from ablations.runs.lock import is_running
from ablations.runs.supervise import process_of
from ablations.search.search import is_search, load_search
from ablations.tables.plan import load_plan
from ablations.tracking.workspace import save_workspace
from experiments.records.progress import read_progress
from experiments.records.result import RESULT_FILE
from experiments.tracking import answers, one_line, server, track_table
from experiments.tracking import project as default_project
from transformer.errors import InputError
from transformer.progress import show_activity

_OFFLINE = "wandb/offline-run-*/run-*.wandb"
_SILENT_SECONDS = 60.0


def track_table_run(root: Path, *, offline: bool = False) -> None:
    """Log the finished runs of the table in ``root``, as in its ``results.csv``, as a W&B table.

    Args:
        root: the table's directory
        offline: whatever the environment says

    Raises:
        InputError: if a file there cannot be read.
    """
    table = compute_numbers(root)
    plan = table.plan
    heads, *lines = lines_of_runs(table)
    track_table(
        root,
        [*map(str, heads)],
        lines,
        {path.stem: path for path in sorted((root / FIGURES).glob("*.png"))},
        offline=offline,
        name=f"{plan.table}-{plan.scale}-table",
        group=f"{plan.table}-{plan.scale}",
        tags=(plan.table, plan.scale, "table"),
        config={"table": plan.table, "scale": plan.scale, "corpus": plan.base.data.corpus.name},
    )


def push(directory: Path, entity: str | None, project: str | None) -> int:
    """Push what is new, save the workspace, and print its address; the exit code.

    Raises:
        InputError: if ``directory`` is not a table's or a search's or has no offline run, if there
            is no login or no answer, or if W&B refuses a run.
    """
    if is_search(directory):
        search = load_search(directory)
        labels = {"search": search.space, "scale": search.scale}
        parameters = [each.name for each in search.parameters]
    else:
        plan = load_plan(directory)
        labels, parameters = {"table": plan.table, "scale": plan.scale}, []
    if not any(directory.rglob(_OFFLINE)):
        raise InputError(
            f"{directory} has no run that W&B tracked offline: they are made by run and search "
            "without --log, and pushed at once if WANDB_API_KEY is set"
        )
    with show_activity("logging in to W&B"):
        account = _log_in()
    entity = entity or os.environ.get("WANDB_ENTITY") or account
    project = project or default_project()
    if not parameters and _is_out_of_date(directory):
        track_table_run(directory, offline=True)
    files = sorted(directory.rglob(_OFFLINE))
    new = [file for file in files if not _is_pushed(file)]
    waiting = [file for file in new if not _is_live(file)]
    if waiting:
        _sync(directory, waiting, entity, project)
    live = f", {len(new) - len(waiting)} left out as they still run" * (len(new) > len(waiting))
    before = f"{len(files) - len(new)} pushed before"
    print(f"{len(waiting)} pushed to {entity}/{project}, {before}{live}")
    with show_activity("saving the workspace"):
        address = save_workspace(directory, labels, parameters, entity, project)
    print(address)
    return 0


def _log_in() -> str:
    """Check the login without asking for one; the account's entity.

    Raises:
        InputError: if there is none, it is refused, or the server does not answer.
    """
    import wandb

    os.environ.pop("WANDB_MODE", None)  # that of runs; a push is online
    address = server()
    if not answers(address):
        raise InputError(f"W&B's server {address} does not answer: try again with a network")
    wandb.setup(wandb.Settings(silent=True))
    try:
        if not wandb.login(prompt=False):
            raise InputError("there is no login at W&B: run wandb login, or set WANDB_API_KEY")
        return str(wandb.Api().default_entity)
    except wandb.Error as error:
        raise InputError(f"W&B's server {address} refuses the login: {one_line(error)}") from error


def _is_out_of_date(root: Path) -> bool:
    """Whether a run finished after the table was tracked, or it never was."""
    tracked = [path.stat().st_mtime for path in root.glob(_OFFLINE)]
    finished = [path.stat().st_mtime for path in root.glob(f"*/*/{RESULT_FILE}")]
    return bool(finished) and max(finished) > max(tracked, default=0.0)


def _is_pushed(file: Path) -> bool:
    """Whether W&B's mark is there, which it makes when all of a file has arrived."""
    return file.with_name(f"{file.name}.synced").exists()


def _is_live(file: Path) -> bool:
    """Whether a process may still be writing the file; one on another machine reports often."""
    running, progress = is_running(process_of(file.parents[2])), read_progress(file.parents[2])
    if running is None and progress is not None:
        return time.time() - progress.updated_at < _SILENT_SECONDS
    return running is True


def _sync(directory: Path, files: Sequence[Path], entity: str, project: str) -> None:
    """Push files by ``wandb sync``, which continues with the others if one fails."""
    command = [sys.executable, "-m", "wandb", "sync", "--entity", entity, "--project", project]
    with show_activity(f"pushing {len(files)} runs"):
        ended = subprocess.run(
            [*command, *(str(file.absolute()) for file in files)],
            cwd=directory,  # where it writes its logs
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            errors="replace",
            check=False,
        )
    if missing := [file for file in files if not _is_pushed(file)]:
        said = ended.stdout.strip().splitlines() or ["wandb sync says nothing"]
        raise InputError(
            f"{len(missing)} of {len(files)} runs were not pushed, such as {missing[0].parent} "
            f"({said[-1].strip()}): the same command continues"
        )
