"""Claim a run's directory for one experiment and process."""

from __future__ import annotations

import os
import re
from collections.abc import Generator
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from pathlib import Path

from experiments.records.attempt import read_attempt
from experiments.records.experiment import CONFIG_FILE, Experiment, load_experiment
from transformer.config import Config, differences, to_dict
from transformer.errors import BlockedError, InputError
from transformer.files import locked, remove_unfinished, write_json
from transformer.variant import current

# A run whose process has just been killed may hold its lock for a moment longer.
_LOCK_SECONDS = 10
# How the variables begin, or end, in which launchers give a process a rank; those in which
# Lightning looks for it, in that order; and those of torchrun.
_OF_LAUNCHERS = ("MASTER_", "SLURM_NTASKS", "TORCHELASTIC_")
_OF_RANKS = ("RANK", "WORLD_SIZE", "LOCALID", "NODEID", "PROCID")
_RANK_VARIABLES = ("RANK", "LOCAL_RANK", "SLURM_PROCID")
_OF_TORCHRUN = ("TORCHELASTIC_RUN_ID", "RANK", "WORLD_SIZE", "LOCAL_WORLD_SIZE")
# Where the first rank leaves its number for the others, which it starts.
STARTER = "EXPERIMENTS_STARTED_BY"
LOST_RANK = "a process of this run was killed, or ended early: the same command continues"


def claim(directory: Path, experiment: Experiment) -> None:
    """Write the experiment into ``directory``, in place of one that differs only in where its text
    lies.

    Raises:
        InputError: if another configuration is there.
    """
    check_configuration(directory, experiment)
    if not (directory / CONFIG_FILE).exists() or load_experiment(directory) != experiment:
        write_json(directory / CONFIG_FILE, to_dict(experiment))


def check_configuration(directory: Path, experiment: Experiment) -> None:
    """Check that ``directory`` belongs to this experiment, or to none yet."""
    if not (directory / CONFIG_FILE).exists():
        return
    found = load_experiment(directory)
    if changes := changed_settings(found.config, experiment.config):
        raise InputError(
            f"{directory} belongs to another configuration ({'; '.join(changes)}): "
            "choose another directory, or remove this one"
        )


def identity(config: Config) -> Config:
    """The parts of a configuration in which equal runs agree: settings, and the source of classes.

    The folders that text lies in do not count, nor do the names of files with classes; a class of
    an earlier version counts as what replaced it.
    """
    found = current(config.without_folders)
    model, training = found.model, found.training
    return replace(
        found,
        model=replace(model, model=_without_file(model.model)),
        training=replace(training, method=_without_file(training.method)),
    )


def _without_file(name: str | None) -> str | None:
    return name and f"file:{name.rpartition(':')[2]}"


def changed_settings(before: Config, now: Config) -> list[str]:
    """The settings in which two runs differ, each as ``model.dropout: 0.1 -> 0.2``."""
    before, now = identity(before), identity(now)
    if before == now:
        return []
    changes = differences(to_dict(before), to_dict(now))
    if before.data.corpus.name != now.data.corpus.name:
        # Everything in another corpus differs; its name is enough to say so.
        corpus = "data.corpus."
        changes = [x for x in changes if not x.startswith(corpus) or x.startswith(f"{corpus}name:")]
    return [_of_source(x) for x in changes]


def _of_source(change: str) -> str:
    """A change of a class, in words if only its source is another."""
    source = re.fullmatch(r"\S+: 'file:(\w+)@(\w+)' -> 'file:(\w+)@(\w+)'", change)
    if source is None or source[1] != source[3]:
        return change.replace("'file:", "'")
    return f"source of {source[1]}: {source[2]} -> {source[4]}"


def is_first_rank() -> bool:
    """Whether this process is the one that writes files; known before there is a Trainer."""
    ranks = (os.environ[name] for name in _RANK_VARIABLES if name in os.environ)
    return int(next(ranks, "0")) == 0


def is_of_first_rank() -> bool:
    """Whether the first rank started this process as another rank, and is still alive."""
    return os.environ.get(STARTER) == str(os.getppid())


def forget_stray_rank() -> None:
    """Remove the variables of a rank that this process only inherited, as from a job's script.

    Raises:
        InputError: if the first rank, which started this process, is gone.
    """
    if STARTER in os.environ:
        if not is_of_first_rank():
            raise InputError(LOST_RANK)
    elif not all(name in os.environ for name in _OF_TORCHRUN):
        forget_rank()


def forget_rank() -> None:
    """Remove the variables in which a launcher gives a rank; a run would inherit them."""
    for name in list(os.environ):
        if name.startswith(_OF_LAUNCHERS) or name.endswith(_OF_RANKS):
            del os.environ[name]


@contextmanager
def lock_directory(directory: Path) -> Generator[None]:
    """Keep other processes out of the directory; the ranks of one run share it."""
    if not is_first_rank():
        yield
        return
    # A paused earlier attempt may still hold its own lock, which was renamed with the directory.
    attempt = read_attempt(directory)
    lock = directory / (".lock" if attempt is None else f".lock-{attempt.number}")
    with ExitStack() as stack:
        try:
            stack.enter_context(locked(lock, seconds=_LOCK_SECONDS))
        except BlockingIOError as error:
            raise BlockedError(f"{directory} is in use by another process") from error
        if attempt is None:  # else its supervisor did so, and may be writing by now
            remove_unfinished(directory)
        yield


def check_not_removed(directory: Path) -> None:
    """Check that the run's directory has not been removed, or taken over, since it was claimed."""
    if is_first_rank() and not (directory / CONFIG_FILE).is_file():
        raise InputError(
            f"{directory} was removed, or emptied, while the run was writing to it: start it again"
        )
