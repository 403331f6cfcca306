"""The experiments one can name, and those made of a user's folder or Python file."""

from __future__ import annotations

import dataclasses
import re
import warnings
from pathlib import Path

from experiments.catalog.cldr import CLDR
from experiments.catalog.multi30k import MULTI30K, MULTI30K_FR, MULTI30K_LONG, recipe
from experiments.catalog.paper import (
    WMT14_EN_DE_BASE,
    WMT14_EN_DE_BIG,
    WMT14_EN_DE_FIRST,
    WMT14_EN_FR_BASE,
    WMT14_EN_FR_BIG,
)
from experiments.catalog.user_files import load_file
from experiments.run.experiment import BEST_FILE, Experiment, read_experiment
from transformer.config import override
from transformer.corpus import Corpus
from transformer.data.corpora.folders import anchored, folder_corpus
from transformer.errors import InputError, unknown_name

EXPERIMENTS = {
    experiment.name: experiment
    for experiment in (
        CLDR,
        MULTI30K,
        MULTI30K_LONG,
        MULTI30K_FR,
        WMT14_EN_DE_FIRST,
        WMT14_EN_DE_BASE,
        WMT14_EN_DE_BIG,
        WMT14_EN_FR_BASE,
        WMT14_EN_FR_BIG,
    )
}

_FILES = "files:"
_LANGUAGES = re.compile(r":([a-z]{2,3})-([a-z]{2,3})$")


def find_experiment(
    name: str,
    *,
    seed: int | None = None,
    vocab_size: int | None = None,
    compile: bool | None = None,
    checkpoint_every_minutes: float | None = None,
) -> Experiment:
    """The experiment of that name, or ``files:FOLDER``, ``files:FOLDER:de-en``, ``FILE.py`` or
    ``FILE.json``.

    Names are the project's own and those that searches have found, see :func:`searched`. A Python
    file declares ``EXPERIMENT`` or ``CORPUS``; relative paths are taken from its folder.
    A folder or a corpus is trained with the settings of ``multi30k``. A file of JSON is what a
    search has found, or the ``config.json`` of a run.

    Raises:
        InputError: for an unknown name, an unusable folder or file, or a negative seed.
    """
    if name.startswith(_FILES):
        experiment = _of_files(name)
    elif name.endswith(".py"):
        experiment = _of_python(Path(name))
    elif name.endswith(".json"):
        experiment = read_experiment(Path(name))
    elif name in EXPERIMENTS:
        experiment = EXPERIMENTS[name]
    else:
        experiment = _of_search(name)
    changes = {
        "seed": seed,
        "vocab_size": vocab_size,
        "compile": compile,
        "checkpoint_every_minutes": checkpoint_every_minutes,
    }
    given = {key: value for key, value in changes.items() if value is not None}
    return dataclasses.replace(experiment, config=override(experiment.config, **given))


def searched() -> dict[str, list[tuple[Path, Experiment]]]:
    """What searches have found to be best, by name: ``best.json`` of each folder in ``runs``."""
    found: dict[str, list[tuple[Path, Experiment]]] = {}
    for path in sorted(Path("runs").glob(f"*/{BEST_FILE}")):
        try:
            experiment = read_experiment(path)
        except InputError as error:
            warnings.warn(str(error), stacklevel=2)  # a file that others need not suffer from
        else:
            found.setdefault(experiment.name, []).append((path, experiment))
    return found


def _of_search(name: str) -> Experiment:
    found = searched()
    if name not in found:
        known = [*EXPERIMENTS, *found, f"{_FILES}FOLDER", "FILE.py"]
        raise unknown_name("experiment", name, known)
    if len(found[name]) > 1:
        paths = " or ".join(str(path) for path, _ in found[name])
        raise InputError(f"{name!r} is the best of several searches: name one file, {paths}")
    return found[name][0][1]


def _of_files(name: str) -> Experiment:
    folder = name.removeprefix(_FILES)
    languages = None
    if match := _LANGUAGES.search(folder):
        folder, languages = folder[: match.start()], (match[1], match[2])
    if not folder:
        raise InputError("files: needs a folder, as in files:my_corpus or files:my_corpus:de-en")
    corpus = folder_corpus(Path(folder).expanduser(), languages)
    pair = f"{corpus.source_language}-{corpus.target_language}"
    return Experiment(
        name=f"files-{corpus.name}-{pair}",
        description=f"the files of {folder}, {pair}",
        config=recipe(corpus),
        tags=("files",),
    )


def _of_python(path: Path) -> Experiment:
    module = load_file(path, "corpus or experiment")
    experiment, corpus = getattr(module, "EXPERIMENT", None), getattr(module, "CORPUS", None)
    if isinstance(experiment, Experiment):
        corpus = anchored(experiment.config.data.corpus, path.parent)
        config = override(experiment.config, corpus=corpus)
        return dataclasses.replace(experiment, config=config)
    if isinstance(corpus, Corpus):
        return Experiment(
            name=corpus.name,
            description=f"the corpus of {path}",
            config=recipe(anchored(corpus, path.parent)),
            tags=("files",),
        )
    raise InputError(f"{path}: no CORPUS = Corpus(…) and no EXPERIMENT = Experiment(…) in it")
