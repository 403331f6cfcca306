"""Export a trained model for other programs."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import torch

from experiments.evaluate.trained import TrainedModel, load_trained, text_of_split
from experiments.export.card import CARD_FILE, model_card
from experiments.records.data import recorded_data
from experiments.records.experiment import CONFIG_FILE, DATA_FILE, EXPERIMENT_FILE, EXPORT_FILE
from experiments.records.outputs import to_average
from transformer.config import to_dict
from transformer.data.fetch.cache import sha256_of
from transformer.data.prepared import VOCABULARY_FILE
from transformer.errors import InputError, require
from transformer.files import (
    copy_plain,
    making,
    read_json,
    remove,
    rename,
    within,
    write_json,
    write_output,
)
from transformer.pretrained import WEIGHTS_FILE, save_weights

# What each format writes: a folder that holds these and nothing else may be replaced.
_FILES = {
    "ctranslate2": {
        "model.bin", "config.json", "shared_vocabulary.json", VOCABULARY_FILE, EXPORT_FILE,
        EXPERIMENT_FILE, DATA_FILE,
    },
    "safetensors": {
        WEIGHTS_FILE, CONFIG_FILE, VOCABULARY_FILE, DATA_FILE, EXPORT_FILE, "attention.html",
    },
    "hf": {
        WEIGHTS_FILE, CONFIG_FILE, "generation_config.json", "source.spm", "target.spm",
        "vocab.json", "tokenizer_config.json", CARD_FILE, EXPERIMENT_FILE, EXPORT_FILE,
    },
}  # fmt: skip
_VOCABULARIES = {"hf": ("source.spm", "target.spm")}
# The library that writes each format.
_LIBRARIES = {"ctranslate2": "ctranslate2", "safetensors": "safetensors", "hf": "safetensors"}
# Files that an export of an earlier version, or of a run without them, does not have.
_OPTIONAL = {EXPORT_FILE, EXPERIMENT_FILE, DATA_FILE, "attention.html"}


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
        check: how many lines to translate with both; None for no check
    """
    if format != "ctranslate2" and quantization is not None:
        raise InputError("--quantization is for --format ctranslate2")
    if format == "safetensors" and check is not None:
        raise InputError("--check is for --format ctranslate2 and hf")
    if check is not None and check < 1:
        raise InputError(f"check is {check}, but must be at least 1")
    require(_LIBRARIES[format])
    if format == "hf" and check is not None:
        require("transformers", "hf")
    trained = load_trained(directory, average, device=torch.device("cpu"))
    output = output or directory / (f"{format}-{quantization}" if quantization else format)
    place = output.resolve()  # a link stays one
    if not place.name:
        raise InputError(f"--output {output} cannot be replaced: choose a folder")
    _take_back(place)
    _check_replaceable(output, format)
    # Read before anything is written: the text may be missing, or the output be the run itself.
    data = recorded_data(directory)
    lines: list[str] = []
    if check is not None:
        lines = text_of_split(trained.experiment, "valid", data).sources[:check]
    with making(_new(place)) as folder:
        folder.mkdir()
        _write(format, trained, directory, folder, quantization)
        files = {path.name: sha256_of(path) for path in sorted(folder.iterdir())}
        weights = _weights(directory, trained.averaged)
        write_json(folder / EXPORT_FILE, {"weights": weights, "files": files})
    _check_replaceable(output, format)  # once more, as files may have come meanwhile
    if place.exists():  # which a rename would not replace
        rename(place, _earlier(place))
    rename(_new(place), place)
    remove(_earlier(place))
    size = sum(file.stat().st_size for file in output.iterdir())
    print(f"{output}  {size / 2**20:.1f} MiB")
    if lines:
        _compare(format, trained, output, lines)


def _write(
    format: str, trained: TrainedModel, directory: Path, folder: Path, quantization: str | None
) -> None:
    """Write all files of an export but ``export.json`` into an empty folder."""
    for name in _VOCABULARIES.get(format, (VOCABULARY_FILE,)):
        copy_plain(directory / VOCABULARY_FILE, folder / name)
    if format == "hf":
        from experiments.export.marian import write_marian_model

        write_marian_model(trained, folder)
        # Without this machine's folders; `experiments train` takes it.
        config = trained.experiment.config.without_folders
        write_json(folder / EXPERIMENT_FILE, to_dict(replace(trained.experiment, config=config)))
        write_output(folder / CARD_FILE, model_card(trained, directory))
    elif format == "ctranslate2":
        from experiments.export.conversion import write_ctranslate2_model

        write_ctranslate2_model(trained.model, trained.vocabulary, folder, quantization)
        write_json(folder / EXPERIMENT_FILE, to_dict(trained.experiment))
    else:
        save_weights(trained.model.state_dict(), folder)
        write_json(folder / CONFIG_FILE, to_dict(trained.experiment))
    data = recorded_data(directory)
    if format != "hf" and data is not None:  # it can be evaluated like a run
        write_json(folder / DATA_FILE, to_dict(data))


def _compare(format: str, trained: TrainedModel, folder: Path, lines: list[str]) -> None:
    """Print how many lines an export translates as torch does."""
    if format == "ctranslate2":
        from experiments.export.conversion import compare_greedy

        extra = trained.experiment.config.decoding.max_extra_length
        same, compared = compare_greedy(trained.model, trained.vocabulary, folder, lines, extra)
        print(f"{same:,} of {compared:,} lines are translated as by torch, by greedy search")
        return
    from experiments.export.marian import compare_with_transformers

    found, compared = compare_with_transformers(trained, folder, lines)
    for kind, same in found.items():
        print(f"{same:,} of {compared:,} lines are the same in transformers: {kind}")


def _weights(directory: Path, count: int) -> list[str]:
    """The sha256 of the files that a model of ``count`` averaged checkpoints is read from."""
    export = directory / WEIGHTS_FILE
    paths = [export] if export.is_file() else to_average(directory, count)
    return [sha256_of(path) for path in paths]


def verify_export(export: Path, run: Path | None = None) -> Iterator[tuple[Path, str]]:
    """Each file of an export, and what is wrong with it; empty if nothing is.

    Given the ``run`` that it was made from, also whether it was made from the run's weights.
    """
    path = export / EXPORT_FILE
    try:
        record = read_json(path)
        files, weights = dict(record["files"]), list(record["weights"])
    except (InputError, KeyError, TypeError, ValueError):
        yield path, "damaged: export it again"
        return
    for name, sum_ in files.items():
        file = within(export, name)
        same = file.is_file() and sha256_of(file) == sum_
        yield file, "" if same else "not as it was exported"
    if run is not None:
        same = weights == _weights(run, len(weights))
        yield export, "" if same else "made from other weights than the run has: export it again"


def _new(place: Path) -> Path:
    return place.with_name(f".{place.name}.new")


def _earlier(place: Path) -> Path:
    return place.with_name(f".{place.name}.earlier")


def _take_back(place: Path) -> None:
    """Undo an export that was killed: give an earlier one its name back, and remove the new one."""
    if _earlier(place).exists() and not place.exists():
        rename(_earlier(place), place)
    for left in (_earlier(place), _new(place)):
        remove(left)


def _check_replaceable(output: Path, format: str) -> None:
    """Check that ``output`` can be made, or is an empty folder or an export and nothing else."""
    if not output.parent.is_dir():
        raise InputError(f"{output.parent} is not a folder: --output cannot be written")
    if not output.exists():
        return
    found = {entry.name for entry in output.iterdir()} if output.is_dir() else {output.name}
    if found and not (_FILES[format] - _OPTIONAL <= found <= _FILES[format]):
        raise InputError(
            f"{output} exists and is not an earlier export of this kind: "
            "choose another --output, or remove it"
        )
