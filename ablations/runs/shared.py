"""Score a run with the training of another run."""

from __future__ import annotations

import os
from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path

from ablations.tables.trainings import needed_checkpoints, written_checkpoints
from experiments.records.checksums import record_checksums
from experiments.records.experiment import CHECKPOINTS, Experiment
from experiments.records.outputs import METRICS_FILE, is_regular, is_whole_file, step_checkpoints
from experiments.records.result import save_result
from experiments.records.run import read_run
from experiments.records.source import has_changed
from transformer.config import Config, training_digest
from transformer.files import copy_plain, making, part_of, remove


def has_training(directory: Path, config: Config) -> bool:
    """Whether the run in ``directory`` is finished, has the training of ``config``, and still has
    the checkpoints that scoring by ``config`` needs.
    """
    run = read_run(directory)
    result, experiment = run.result, run.experiment
    if result is None or experiment is None or result.steps != config.training.max_steps:
        return False
    if training_digest(experiment.config) != training_digest(config) or has_changed(run):
        return False
    found = step_checkpoints(directory)
    if not found or found[-1][0] != result.steps:
        return False
    count = sum(is_regular(path) or step == result.steps for step, path in found)
    written = written_checkpoints(config.training)
    needed = needed_checkpoints(config)
    return count >= (needed if written is None else min(needed, written))


def take_training(directory: Path, config: Config, others: Iterable[Path]) -> Path | None:
    """Give a run without checkpoints those of the first of the ``others`` with its training.

    Returns:
        The directory that they come from; None if there is none.
    """
    if step_checkpoints(directory):
        return None
    remove(part_of(directory / CHECKPOINTS))  # of a driver that was killed below
    for other in others:
        if has_training(other, config) and _is_whole(other):
            _take(other, directory)
            return other
    return None


def take_divergence(directory: Path, experiment: Experiment, others: Iterable[Path]) -> Path | None:
    """If the same training diverged in one of the ``others``, give a run the first such result.

    Returns:
        The directory that it comes from; None if there is none.
    """
    config = experiment.config
    for other in others:
        run = read_run(other)
        if run.result is None or run.diverged_at is None or run.experiment is None:
            continue
        if training_digest(run.experiment.config) == training_digest(config):
            checkpoints = config.training.average_checkpoints
            result = replace(
                run.result, experiment=experiment.name, averaged_checkpoints=checkpoints
            )
            save_result(directory, record_checksums(directory, result))
            return other
    return None


def _is_whole(directory: Path) -> bool:
    """Whether no checkpoint of a run is damaged."""
    try:
        return all(is_whole_file(path) for _, path in step_checkpoints(directory))
    except Exception:  # damage can cause almost any kind
        return False


def _take(source: Path, target: Path) -> None:
    """Take the metrics, and then all checkpoints at once: a kill leaves all of them or none.

    The run may have metrics of its own, of steps before its first checkpoint.
    """
    if (source / METRICS_FILE).is_file():
        with making(target / METRICS_FILE) as part:
            copy_plain(source / METRICS_FILE, part)
    with making(target / CHECKPOINTS) as folder:
        folder.mkdir()
        for _, path in step_checkpoints(source):
            copy = folder / path.name
            try:
                os.link(path, copy)  # takes no space; a checkpoint is replaced, never changed
            except OSError:  # such as on a file system without hard links
                copy_plain(path, copy)
        remove(target / CHECKPOINTS)
