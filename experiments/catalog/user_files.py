"""A user's own experiments, from a folder or a file."""

from __future__ import annotations

import dataclasses
import re
from pathlib import Path

from experiments.catalog.multi30k import recipe
from experiments.records.experiment import Experiment
from transformer.config import override
from transformer.corpus import Corpus
from transformer.data.corpora.folders import anchored, folder_corpus
from transformer.errors import InputError
from transformer.files import load_file

FILES = "files:"
_LANGUAGES = re.compile(r":([a-z]{2,3})-([a-z]{2,3})$")


def experiment_of_folder(name: str) -> Experiment:
    """The text of ``files:FOLDER`` or ``files:FOLDER:de-en``, trained like ``multi30k``.

    Raises:
        InputError: if the folder cannot be used.
    """
    folder = name.removeprefix(FILES)
    languages = None
    if match := _LANGUAGES.search(folder):
        folder, languages = folder[: match.start()], (match[1], match[2])
    if not folder:
        raise InputError("files: needs a folder, as in files:my_corpus or files:my_corpus:de-en")
    corpus = folder_corpus(folder, languages)
    pair = f"{corpus.source_language}-{corpus.target_language}"
    return Experiment(
        name=f"files-{corpus.name}-{pair}",
        description=f"the files of {folder}, {pair}",
        config=recipe(corpus),
        tags=("files",),
    )


def experiment_of_file(path: Path) -> Experiment:
    """The ``EXPERIMENT`` that a Python file declares, or its ``CORPUS``, trained like ``multi30k``.

    Relative paths in it start from its folder.

    Raises:
        InputError: if the file is missing, fails, or declares neither.
    """
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
