"""Two runs, or two files of translations, against each other."""

from __future__ import annotations

from pathlib import Path

from experiments.evaluate.significance import Significance, paired_bootstrap
from experiments.run.data import noted_data
from experiments.run.experiment import Experiment, load_experiment
from experiments.run.results import hypotheses_path
from transformer.data.text import read_text
from transformer.errors import InputError


def compare_runs(first: Path, second: Path, split: str) -> Significance:
    """Two runs by the translations that each left of ``split``.

    Raises:
        InputError: if one is no run or left none, or the other's are of another text.
    """
    for path in (first, second):
        if path.is_file():
            raise InputError(
                f"{path} is a file: to compare two files of translations give --reference FILE, "
                "the lines that they should say"
            )
    from experiments.evaluate.evaluate import text_of_split  # torch, which files do without

    experiment = load_experiment(first)
    _check_same_text(experiment, load_experiment(second), split)
    ours, theirs = (_hypotheses(run, split) for run in (first, second))
    noted, other = noted_data(first), noted_data(second)
    for name in (f"{split}/source.txt", f"{split}/reference.txt"):
        if noted and other and noted.files.get(name) != other.files.get(name):
            raise InputError(f"{first} and {second} were scored on different text: {name} differs")
    _, references = text_of_split(experiment, split, noted)
    return paired_bootstrap((str(first), ours), (str(second), theirs), references)


def compare_files(first: Path, second: Path, reference: Path) -> Significance:
    """Two files of translations, a line for each of ``reference``.

    Raises:
        InputError: if a file cannot be read, or the numbers of lines differ.
    """
    return paired_bootstrap(
        (str(first), read_text(first)), (str(second), read_text(second)), read_text(reference)
    )


def _hypotheses(directory: Path, split: str) -> list[str]:
    path = hypotheses_path(directory, split)
    if not path.is_file():
        raise InputError(
            f"{directory} has no {path.name}: it is not finished, or was not scored on {split}"
        )
    return read_text(path)


def _check_same_text(first: Experiment, second: Experiment, split: str) -> None:
    one, other = first.config.data.corpus, second.config.data.corpus
    for corpus in (one, other):
        if split not in corpus.splits:
            raise InputError(f"the corpus {corpus.name} has no {split} set")
    if (one.splits[split], one.target_language) != (other.splits[split], other.target_language):
        raise InputError(
            f"the runs translated different {split} sets, of {one.name} and of {other.name}: "
            "compare runs on one corpus"
        )
