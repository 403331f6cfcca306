"""Write a trained model in a format of others."""

from __future__ import annotations

import shutil
from pathlib import Path

import torch

from experiments.evaluate.trained import load_trained, text_of_split, with_ctranslate2
from experiments.records.data import recorded_data
from experiments.records.experiment import CONFIG_FILE, DATA_FILE
from transformer.config import to_dict
from transformer.data.prepared import VOCABULARY_FILE
from transformer.errors import InputError, require
from transformer.files import making, remove, write_json
from transformer.pretrained import WEIGHTS_FILE, save_weights

# What each format writes: a folder that holds nothing else may be replaced.
_FILES = {
    "ctranslate2": {"model.bin", "config.json", "shared_vocabulary.json", VOCABULARY_FILE},
    "safetensors": {WEIGHTS_FILE, CONFIG_FILE, VOCABULARY_FILE, DATA_FILE, "attention.html"},
}


def export_run(
    directory: Path,
    format: str,
    quantization: str | None,
    average: int | None,
    output: Path | None,
    check: int | None,
) -> None:
    """Write a run's model for other programs, and print where.

    Args:
        output: the folder to write; None for one in ``directory``
        check: how many lines to translate with both engines; None for no check
    """
    if format != "ctranslate2" and not (quantization is None and check is None):
        raise InputError("--quantization and --check are for --format ctranslate2")
    if check is not None and check < 1:
        raise InputError(f"check is {check}, but must be at least 1")
    require(format)
    trained = load_trained(directory, average, device=torch.device("cpu"))
    output = output or directory / (f"{format}-{quantization}" if quantization else format)
    _check_replaceable(output, _FILES[format])
    # Read before anything is written: the text may be missing, or the output be the run itself.
    data = recorded_data(directory)
    lines = [] if check is None else text_of_split(trained.experiment, "valid", data)[0][:check]
    place = output.resolve()  # a link stays one
    with making(place) as folder:
        folder.mkdir()
        shutil.copyfile(directory / VOCABULARY_FILE, folder / VOCABULARY_FILE)
        if format == "safetensors":
            save_weights(trained.model, folder)
            write_json(folder / CONFIG_FILE, to_dict(trained.experiment))
            if data is not None:  # it can be evaluated like a run
                write_json(folder / DATA_FILE, to_dict(data))
        else:
            from experiments.export.engine import write_ctranslate2_model

            write_ctranslate2_model(trained.model, trained.vocabulary, folder, quantization)
        remove(place)  # an earlier export, which a rename would not replace
    size = sum(file.stat().st_size for file in output.iterdir())
    print(f"{output}  {size / 2**20:.1f} MiB")
    if lines:
        theirs = with_ctranslate2(trained, output).decode(lines)
        same = sum(x == y for x, y in zip(trained.decode(lines), theirs, strict=True))
        print(f"{same:,} of {len(lines):,} lines are translated as by torch")


def _check_replaceable(output: Path, files: set[str]) -> None:
    if not output.parent.is_dir():
        raise InputError(f"{output.parent} is not a folder: --output cannot be written")
    if output.exists() and not (
        output.is_dir() and {entry.name for entry in output.iterdir()} <= files
    ):
        raise InputError(
            f"{output} exists and is no earlier export of this kind: "
            "choose another --output, or remove it"
        )
