"""Push tables, and runs tracked offline, to W&B."""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
import time
import warnings
from collections.abc import Sequence
from pathlib import Path

from ablations.files import FIGURES
from ablations.folder import TableFolder, open_runs
from ablations.report.numbers import compute_numbers
from ablations.report.report import lines_of_runs
from ablations.tracking.workspace import save_workspace
from experiments.records.processes import is_running
from experiments.records.run import Run
from experiments.tracking import answers, one_line, server, set_up, track_table
from experiments.tracking import project as default_project
from transformer.errors import InputError
from transformer.files import within
from transformer.progress import show_activity

_OFFLINE = "wandb/offline-run-*/run-*.wandb"
_SILENT_SECONDS = 60.0
# What W&B says of a file that was cut off by a kill or damaged by the disk.
_OF_DAMAGE = ("incomplete record", "bad header", "transactionlog")


def track_table_run(root: Path, *, offline: bool = False) -> None:
    """Log the finished runs of the table in ``root`` as a W&B table, as in its ``results.csv``.

    Args:
        root: the table's directory
        offline: log offline, whatever the environment says

    Raises:
        InputError: if a file there cannot be read.
    """
    folder = TableFolder(root)
    plan = folder.plan
    heads, *lines = lines_of_runs(compute_numbers(folder), folder)
    track_table(
        root,
        [*map(str, heads)],
        lines,
        {path.stem: path for path in _found(root, f"{FIGURES}/*.png")},
        offline=offline,
        name=f"{plan.table}-{plan.scale}-table",
        group=f"{plan.table}-{plan.scale}",
        tags=(plan.table, plan.scale, "table"),
        config={"table": plan.table, "scale": plan.scale, "corpus": plan.base.data.corpus.name},
    )


def push(directory: Path, entity: str | None, project: str | None) -> int:
    """Push what is new, save the workspace, and print its address; return the exit code.

    W&B takes a damaged file up to the damage; such a file is named in a warning and not tried
    again.

    Raises:
        InputError: if ``directory`` is not a table's or a search's or has no offline run, if there
            is no login, if the server does not answer, or, once all other runs are pushed, if W&B
            refused one.
    """
    folder = open_runs(directory)
    files = _found(directory, f"**/{_OFFLINE}")
    if not files:
        raise InputError(
            f"{directory} has no run that W&B tracked offline: run and search track offline unless "
            "--log says otherwise, and push at once if WANDB_API_KEY is set"
        )
    with show_activity("logging in to W&B"):
        account = _log_in()
    entity = entity or os.environ.get("WANDB_ENTITY") or account
    project = project or default_project()
    refused = 0
    if isinstance(folder, TableFolder) and _is_out_of_date(folder):
        try:
            track_table_run(directory, offline=True)
        except InputError as error:
            warnings.warn(f"the table is not pushed: {error}", stacklevel=2)
            refused += 1
    files = _found(directory, f"**/{_OFFLINE}")  # with the table's
    before = [file for file in files if _is_pushed(file)]
    new = [file for file in files if file not in before and not _is_damaged(file)]
    runs = {run.directory: run for part in folder.parts for run in part.look()}
    waiting = [file for file in new if not _is_live(runs.get(file.parents[2]))]
    if waiting:
        refused += _push_files(waiting, entity, project)
    pushed, damaged = sum(map(_is_pushed, waiting)), sum(map(_is_damaged, files))
    words = [f"{pushed} pushed to {entity}/{project}", f"{len(before)} pushed before"]
    if len(new) > len(waiting):
        words.append(f"{len(new) - len(waiting)} left out as they are still running")
    if damaged:
        words.append(f"{damaged} damaged")
    print(", ".join(words))
    set_up("online")  # the table's run was offline
    with show_activity("saving the workspace"):
        address = save_workspace(directory, folder.labels, folder.parameters, entity, project)
    print(address)
    if refused:
        raise InputError(f"{refused} runs were not pushed: the same command continues")
    return 0


def _log_in() -> str:
    """Check the login without asking for one; return the account's entity.

    Raises:
        InputError: if there is no login, it is refused, or the server does not answer.
    """
    import wandb

    os.environ.pop("WANDB_MODE", None)  # it is meant for runs; a push is online
    address = server()
    if not answers(address):
        raise InputError(f"W&B's server {address} does not answer: check the network and try again")
    set_up("online")
    try:
        if not wandb.login(prompt=False):
            raise InputError("you are not logged in to W&B: run wandb login, or set WANDB_API_KEY")
        return str(wandb.Api().default_entity)
    except wandb.Error as error:
        raise InputError(f"W&B's server {address} refuses the login: {one_line(error)}") from error


def _is_out_of_date(folder: TableFolder) -> bool:
    """Whether the table was never tracked, or a run has finished since."""
    tracked = [path.stat().st_mtime for path in _found(folder.path, _OFFLINE)]
    return folder.finished_at > max(tracked, default=0.0)


def _found(folder: Path, pattern: str) -> list[Path]:
    """The files that match; links are refused, as the files are sent to W&B or marked."""
    paths = sorted(folder.glob(pattern))
    return [within(folder, str(path.relative_to(folder))) for path in paths]


def _is_pushed(file: Path) -> bool:
    """Whether W&B has marked the file, which it does when all of the file has arrived."""
    return file.with_name(f"{file.name}.synced").exists()


def _is_live(run: Run | None) -> bool:
    """Whether a process may still be writing a run's files; on another machine, by its last report.

    A table's own file belongs to no run and is always complete.
    """
    if run is None:
        return False
    running = is_running(run.process)
    if running is None and run.progress is not None:
        return time.time() - run.progress.updated_at < _SILENT_SECONDS
    return running is True


def _is_damaged(file: Path) -> bool:
    """Whether W&B failed to read all of a file that has not changed since."""
    mark = _mark_of_damage(file)
    return mark.exists() and mark.stat().st_mtime >= file.stat().st_mtime


def _mark_of_damage(file: Path) -> Path:
    return file.with_name(f"{file.name}.damaged")


def _push_files(files: Sequence[Path], entity: str, project: str) -> int:
    """Push files, warn of those that W&B does not take, and mark damaged ones; return how many were
    refused though they are not damaged.
    """
    with show_activity(f"pushing {len(files)} runs"):
        _sync(files, entity, project)
    refused = 0
    for file in files:
        if _is_pushed(file):
            continue
        # Once more, alone: it may only have had to wait for another file of the same W&B run.
        said = _sync([file], entity, project)
        if _is_pushed(file):
            continue
        if any(words in said for words in _OF_DAMAGE):
            _mark_of_damage(file).touch()
            warnings.warn(f"{file} is damaged: at most its start is pushed", stacklevel=2)
        else:
            warnings.warn(f"{file} was not pushed ({said})", stacklevel=2)
            refused += 1
    return refused


def _sync(files: Sequence[Path], entity: str, project: str) -> str:
    """Push files with ``wandb sync``; return the last line of its output."""
    command = [sys.executable, "-m", "wandb", "sync", "--entity", entity, "--project", project]
    # Python and W&B would take modules and settings from the working directory.
    with tempfile.TemporaryDirectory() as empty:
        (Path(empty) / "wandb").mkdir()  # for its log
        ended = subprocess.run(
            [*command, *(str(file.absolute()) for file in files)],
            cwd=empty,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            errors="replace",
            check=False,
        )
    return (ended.stdout.strip().splitlines() or ["wandb sync says nothing"])[-1].strip()
