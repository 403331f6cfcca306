"""A user's own experiments: a folder of text, or a Python file that declares one."""

from __future__ import annotations

import dataclasses
import importlib.util
import re
import traceback
from pathlib import Path
from types import ModuleType

from experiments.catalog.multi30k import recipe
from experiments.run.experiment import Experiment
from transformer.config import override
from transformer.corpus import Corpus
from transformer.data.corpora.folders import anchored, folder_corpus
from transformer.errors import InputError

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


def load_file(path: Path, kind: str) -> ModuleType:
    """Run a Python file and return it as a module.

    Args:
        path: of the file
        kind: what it should declare, such as "table", for the message

    Raises:
        InputError: if it is missing or fails, with the line that failed.
    """
    if not path.is_file():
        raise InputError(f"there is no {kind} file {path}")
    spec = importlib.util.spec_from_file_location(path.stem, path)
    if spec is None or spec.loader is None:
        raise InputError(f"{path} cannot be loaded as Python")
    module = importlib.util.module_from_spec(spec)
    try:
        spec.loader.exec_module(module)
    except InputError as error:
        raise InputError(f"{path}{_line(error, spec.origin)}: {error}") from error
    except Exception as error:  # any failure of a user's file is bad input
        message = " ".join(f"{type(error).__name__}: {error}".split())
        raise InputError(f"{path}{_line(error, spec.origin)}: {message}") from error
    return module


def _line(error: Exception, file: str | None) -> str:
    """The line of the file that failed; a syntax error names it itself."""
    frames = traceback.extract_tb(error.__traceback__)
    lines = [frame.lineno for frame in frames if frame.filename == file]
    return f", line {lines[-1]}" if lines else ""
