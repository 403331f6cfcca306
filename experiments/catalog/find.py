"""Find an experiment by its name or file."""

from __future__ import annotations

import dataclasses
import warnings
from pathlib import Path

from experiments.catalog.own_text import FILES, experiment_of_folder, settings_of
from experiments.catalog.parsing import PARSING, TREEBANK, experiment_of_treebank
from experiments.catalog.translation import TRANSLATION
from experiments.records.experiment import BEST_FILE, CONFIG_FILE, Experiment, read_experiment
from transformer.config import override
from transformer.corpus import Corpus
from transformer.errors import InputError, unknown_name
from transformer.python_files import load_file

EXPERIMENTS = {
    name: Experiment(name=name, description=description, config=config)
    for name, (description, config) in (TRANSLATION | PARSING).items()
}


def find_experiment(name: str, like: str | None = None, **changes: float | None) -> Experiment:
    """Find the experiment of that name, with the given changes.

    Args:
        name: one of the project's own, the best of a search in ``runs``, ``files:FOLDER``,
            ``files:FOLDER:de-en``, ``treebank:FOLDER``, ``FILE.py``, or a ``FILE.json`` of a search
            or of a run (its ``config.json``)
        like: the experiment whose settings to take for text of the user's own
        changes: fields of the configuration; None leaves one as it is

    Raises:
        InputError: for an unknown name, an unusable folder or file, or an invalid value.
    """
    if name.startswith(FILES):
        experiment = experiment_of_folder(name, like)
    elif name.endswith(".py"):
        experiment = experiment_of_file(Path(name), like)
    elif like is not None:
        raise InputError(f"--like is for text of your own, such as files:FOLDER, not for {name}")
    elif name.startswith(TREEBANK):
        experiment = experiment_of_treebank(name)
    elif name.endswith(".json"):
        experiment = read_experiment(Path(name).resolve())  # which may be a link: the user named it
    elif name in EXPERIMENTS:
        experiment = EXPERIMENTS[name]
    else:
        experiment = _of_search(name)
    given = {key: value for key, value in changes.items() if value is not None}
    return dataclasses.replace(experiment, config=override(experiment.config, **given))


def experiment_of_file(path: Path, like: str | None = None) -> Experiment:
    """The ``EXPERIMENT`` that a Python file declares, or its ``CORPUS`` with the settings of the
    experiment ``like``, by default of ``multi30k``: text that is not fetched yet cannot be counted.

    Relative paths in it start from its folder.
    """
    module = load_file(path, "corpus or experiment")
    found, corpus = getattr(module, "EXPERIMENT", None), getattr(module, "CORPUS", None)
    if found is None and isinstance(corpus, Corpus):
        found = Experiment(
            name=corpus.name,
            description=f"the corpus of {path}",
            config=settings_of(like or "multi30k", corpus),
            tags=("files",),
        )
    elif like is not None and isinstance(found, Experiment):
        raise InputError(f"{path} declares an EXPERIMENT with settings of its own: give no --like")
    if not isinstance(found, Experiment):
        raise InputError(f"{path}: no CORPUS = Corpus(…) and no EXPERIMENT = Experiment(…) in it")
    placed = found.config.data.corpus.placed(path.parent)
    return dataclasses.replace(found, config=override(found.config, corpus=placed))


def searched() -> dict[Path, Experiment]:
    """The best of each search in ``runs`` by its file, which is data and never executed."""
    found: dict[Path, Experiment] = {}
    for path in sorted(Path("runs").glob(f"*/{BEST_FILE}")):
        try:
            found[path] = read_experiment(path)
        except InputError as error:  # one bad file should not hide the others
            warnings.warn(str(error), stacklevel=2)
    return found


def _of_search(name: str) -> Experiment:
    """The best of a search in ``runs`` by its name, or an error that says what to name instead."""
    every = searched()
    found = [path for path, experiment in every.items() if experiment.name == name]
    if not found and (Path(name) / CONFIG_FILE).is_file():
        raise InputError(
            f"{name} is the directory of a run: its experiment is {name}/{CONFIG_FILE}"
        )
    if not found and ("/" in name or Path(name).is_dir()):
        raise InputError(f"{name} is no experiment, and no run either: it has no {CONFIG_FILE}")
    if not found:
        names = [*EXPERIMENTS, *(experiment.name for experiment in every.values())]
        forms = [f"{FILES}FOLDER", f"{TREEBANK}FOLDER", "FILE.py", "FILE.json"]
        raise unknown_name("experiment", name, [*names, *forms])
    if len(found) > 1:
        paths = " or ".join(map(str, found))
        raise InputError(f"{name!r} is the best of several searches: name one file, {paths}")
    return every[found[0]]
