"""Check every byte of a run and its data."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from experiments.catalog.find import find_experiment
from experiments.records.checkpoints import is_sound, step_checkpoints
from experiments.records.checksums import check_files, read_checksums
from experiments.records.data import recorded_data, run_vocabulary
from experiments.records.experiment import CONFIG_FILE, load_experiment
from transformer.data.prepare.prepare import verify
from transformer.data.prepared import VOCABULARY_FILE
from transformer.errors import InputError


def verify_all(name: str, vocab_size: int | None) -> None:
    """Check the data of an experiment, or a run with its checkpoints and data; print each file that
    has changed, and how many were checked.
    """
    directory = Path(name)
    if (directory / CONFIG_FILE).is_file():
        checked = _of_run(directory)
    elif directory.is_dir():
        raise InputError(
            f"{name} is not the directory of a run; for a folder of text: files:{name}"
        )
    else:
        checked = verify(find_experiment(name, vocab_size=vocab_size).config)
    count = problems = 0
    for path, problem in checked:
        count += 1
        if problem:
            problems += 1
            print(f"{path}: {problem}")
    if problems:
        raise InputError(f"{name}: {problems} of {count} files are not as they were")
    print(f"{count} files, all as they were")


def _of_run(directory: Path) -> Iterator[tuple[Path | str, str]]:
    sums = read_checksums(directory)
    yield from check_files(directory, sums) if sums else _of_unfinished(directory)
    yield from verify(load_experiment(directory).config, recorded_data(directory))


def _of_unfinished(directory: Path) -> Iterator[tuple[Path, str]]:
    try:
        run_vocabulary(directory)
        problem = ""
    except InputError:
        problem = "changed since the run began; restore it from the prepared corpus"
    yield directory / VOCABULARY_FILE, problem
    for _, path in step_checkpoints(directory):
        yield path, "" if is_sound(path) else "damaged; train continues from an earlier one"
