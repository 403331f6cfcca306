"""A trained model in the form that other programs read."""

from __future__ import annotations

import fcntl
import os
import shutil
from collections.abc import Generator
from contextlib import contextmanager, suppress
from pathlib import Path

import torch

from experiments.evaluate.comparison import compare
from experiments.evaluate.engine import open_ctranslate2
from experiments.evaluate.evaluate import text_of_split
from experiments.evaluate.weights import Trained, load_trained
from experiments.run.data import DATA_FILE, noted_data
from experiments.run.experiment import CONFIG_FILE
from experiments.run.files import write_json
from transformer.config import to_dict
from transformer.data.prepared import VOCABULARY_FILE
from transformer.errors import InputError, require
from transformer.pretrained import WEIGHTS_FILE, save_weights

# What each format writes: a folder that holds nothing else may be replaced.
_FILES = {
    "ctranslate2": {"model.bin", "config.json", "shared_vocabulary.json", VOCABULARY_FILE},
    "safetensors": {WEIGHTS_FILE, CONFIG_FILE, VOCABULARY_FILE, DATA_FILE},
}


def export_run(
    directory: Path,
    format: str,
    *,
    quantization: str | None,
    average: int | None,
    output: Path | None,
    check: int | None,
) -> None:
    """Write a run's model for others, and print where; ``check`` lines are translated by both.

    Raises:
        InputError: if the run cannot be used, or the place or an option makes no sense.
    """
    if format != "ctranslate2" and not (quantization is None and check is None):
        raise InputError("--quantization and --check are for --format ctranslate2")
    if check is not None and check < 1:
        raise InputError(f"check is {check}, but must be at least 1")
    require(format)
    trained = load_trained(directory, average, device=torch.device("cpu"))
    name = format if quantization is None else f"{format}-{quantization}"
    output = output or directory / name
    for place in (output, _replaced(output)):
        _refuse_what_is_not_ours(place, _FILES[format])
    # Read before anything is written: the text may be missing, or the directory be the output.
    noted = noted_data(directory)
    lines = [] if check is None else text_of_split(trained.experiment, "valid", noted)[0][:check]
    with _new_folder(output) as folder:
        _write(trained, format, folder, quantization)
        shutil.copyfile(directory / VOCABULARY_FILE, folder / VOCABULARY_FILE)
        if format == "safetensors" and noted is not None:  # it is evaluated like a run
            write_json(folder / DATA_FILE, to_dict(noted))
    size = sum(file.stat().st_size for file in output.iterdir())
    print(f"{output}  {size / 2**20:.1f} MiB")
    if lines:
        decoding = trained.experiment.config.decoding
        decode = open_ctranslate2(trained.model, trained.vocabulary, decoding, folder=output)
        print(compare(trained.model, trained.vocabulary, decoding, lines, decode))


def _write(trained: Trained, format: str, folder: Path, quantization: str | None) -> None:
    if format == "safetensors":
        save_weights(trained.model, folder)
        write_json(folder / CONFIG_FILE, to_dict(trained.experiment))
        return
    from experiments.export.ctranslate2_model import write_ctranslate2_model

    write_ctranslate2_model(trained.model, trained.vocabulary, folder, quantization)


def _refuse_what_is_not_ours(output: Path, files: set[str]) -> None:
    if not output.parent.is_dir():
        raise InputError(f"{output.parent} is not a folder: --output cannot be written")
    if output.exists() and not (
        output.is_dir() and {entry.name for entry in output.iterdir()} <= files
    ):
        raise InputError(
            f"{output} exists and is no earlier export of this kind: "
            "choose another --output, or remove it"
        )


@contextmanager
def _new_folder(path: Path) -> Generator[Path]:
    """A folder to fill, which then stands at ``path``; nothing stays behind if that fails. What a
    killed export left is removed, and the one that it was about to replace is put back.
    """
    temporary, replaced = path.with_name(f".{path.name}.part"), _replaced(path)
    with _alone_in(path.parent):
        _tidy_up(path, temporary, replaced)
        temporary.mkdir()
        try:
            yield temporary
            if path.exists():
                path.rename(replaced)
            temporary.rename(path)
        finally:
            _tidy_up(path, temporary, replaced)


def _replaced(path: Path) -> Path:
    """Where an earlier export is for a moment; a kill in it leaves it in plain sight."""
    return path.with_name(f"{path.name}.replaced")


def _tidy_up(path: Path, temporary: Path, replaced: Path) -> None:
    shutil.rmtree(temporary, ignore_errors=True)
    if replaced.exists():
        replaced.rename(temporary if path.exists() else path)
        shutil.rmtree(temporary, ignore_errors=True)


@contextmanager
def _alone_in(folder: Path) -> Generator[None]:
    """Wait for other exports into ``folder``; the lock leaves no file and ends with the process."""
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        with suppress(OSError):  # some network file systems lock no folders
            fcntl.flock(descriptor, fcntl.LOCK_EX)
        yield
    finally:
        os.close(descriptor)
