"""The archive from which the next session on a GPU starts."""

from __future__ import annotations

import tarfile
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from experiments.records.experiment import CHECKPOINTS, CONFIG_FILE, load_experiment
from experiments.records.outputs import is_regular, step_checkpoints
from experiments.records.result import RESULT_FILE
from transformer.config import TrainingConfig

_PACKED = 0.92  # the share of its size that a checkpoint takes in the archive


@dataclass(frozen=True, slots=True)
class Unfinished:
    """A run that has to be continued.

    Attributes:
        progress: the share of its steps that its newest checkpoint has
        checkpoints: the checkpoints that the rest of the run needs
    """

    directory: Path
    progress: float
    checkpoints: tuple[Path, ...]


def unfinished(folder: Path) -> Iterator[Unfinished]:
    """The runs below ``folder`` that have begun and have no result."""
    for config in sorted(folder.rglob(CONFIG_FILE)):
        directory = config.parent
        if (directory / RESULT_FILE).exists():
            continue
        training = load_experiment(directory).config.training
        found = step_checkpoints(directory)
        progress = found[-1][0] / training.max_steps if found else 0.0
        yield Unfinished(directory, progress, needed(found, training))


def needed(found: Sequence[tuple[int, Path]], training: TrainingConfig) -> tuple[Path, ...]:
    """The newest checkpoint, and earlier ones that the average at the end takes."""
    if not found:
        return ()
    (*_, (step, newest)), every = found, training.checkpoint_every_steps
    count = max(training.average_checkpoints, training.also_average or 1)
    count -= training.max_steps // every - step // every
    regular = [path for _, path in found if is_regular(path)]
    return tuple(dict.fromkeys([*regular[max(0, len(regular) - count) :], newest]))


def pack(folder: Path, archive: Path, most: int) -> list[str]:
    """Write the work to an archive of at most ``most`` bytes.

    Checkpoints of finished runs are left out. If the others are too large, the runs with the least
    progress are left out, and begin from the start.

    Returns:
        a line for each run that was left out
    """
    runs = sorted(unfinished(folder), key=lambda run: -run.progress)
    kept: list[Unfinished] = []
    left = most
    for run in runs:
        size = sum(path.stat().st_size for path in run.checkpoints)
        if size * _PACKED <= left:
            kept.append(run)
            left -= int(size * _PACKED)
    while (size := _write(folder, archive, _files(folder, runs, kept))) > most and kept:
        kept.pop()
    gone = [run for run in runs if run not in kept]
    lines = [f"left out: {run.directory} at {run.progress:.0%}" for run in gone]
    if size > most:
        lines.append(f"{archive} has {size:,} bytes, more than the {most:,} asked for")
    return lines


def _files(folder: Path, runs: Sequence[Unfinished], kept: Sequence[Unfinished]) -> set[Path]:
    """All files but those of runs that are not kept, and checkpoints that no run needs."""
    gone = [run.directory for run in runs if run not in kept]
    found = {path for run in kept for path in run.checkpoints}
    for path in folder.rglob("*"):
        is_small = path.is_file() and CHECKPOINTS not in path.relative_to(folder).parts
        if is_small and not any(directory in path.parents for directory in gone):
            found.add(path)
    return found


def _write(folder: Path, archive: Path, files: set[Path]) -> int:
    """Write an archive in one go, and return its size.

    Files of one name come together, so that what runs have in common is stored once.
    """
    part = archive.with_name(f"{archive.name}.part")
    with tarfile.open(part, "w:xz", preset=3) as tar:
        for path in sorted(files, key=lambda path: (path.suffix == ".ckpt", path.name, path)):
            with suppress(FileNotFoundError):  # a killed run may still be ending
                tar.add(path, path.relative_to(folder))
    part.replace(archive)
    return archive.stat().st_size


def unpack(archive: Path, folder: Path) -> None:
    """Unpack an archive into a folder that is not there yet."""
    part = folder.with_name(f"{folder.name}.part")
    with tarfile.open(archive) as tar:
        tar.extractall(part, filter="data")
    part.rename(folder)
