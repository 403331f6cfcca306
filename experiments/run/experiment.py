"""A named run: what is trained, and under which names it is tracked."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from experiments.run.files import read_json, write_json
from transformer.config import Config, differences, from_dict, to_dict
from transformer.errors import InputError

CONFIG_FILE = "config.json"
# Where a search leaves its best configuration, below the folder of all runs.
BEST_FILE = "best.json"


@dataclass(frozen=True, kw_only=True, slots=True)
class Experiment:
    """A configuration with a name. ``group`` and ``tags`` order the runs in W&B."""

    name: str
    description: str
    config: Config
    group: str | None = None
    tags: tuple[str, ...] = ()


def load_experiment(directory: Path) -> Experiment:
    """The experiment that a run's directory belongs to.

    Raises:
        InputError: if the directory holds no run.
    """
    path = directory / CONFIG_FILE
    if not path.is_file():
        runs = (f"*/{CONFIG_FILE}", f"*/*/{CONFIG_FILE}")  # a search's, a table's
        below = sorted(path for pattern in runs for path in directory.glob(pattern))
        hint = f"; one below it is {below[0].parent}" if below else ""
        raise InputError(
            f"{directory} is not the directory of a run: it has no {CONFIG_FILE}{hint}"
        )
    if (directory / "model.bin").is_file():
        raise InputError(
            f"{directory} is an export for CTranslate2: give the run, with --engine ctranslate2"
        )
    return read_experiment(path)


def read_experiment(path: Path) -> Experiment:
    """The experiment that a file of JSON describes, a run's or a search's.

    Raises:
        InputError: if it is missing or damaged, or of another version.
    """
    return from_dict(Experiment, read_json(path), str(path))


def claim(directory: Path, experiment: Experiment, *, make: bool = True) -> None:
    """Make ``directory`` the experiment's, or check that it is already.

    Args:
        make: the directory, where it is missing

    Raises:
        InputError: as :func:`refuse_another` does.
    """
    refuse_another(directory, experiment)
    if not (directory / CONFIG_FILE).exists():
        if make:
            directory.mkdir(parents=True, exist_ok=True)
        write_json(directory / CONFIG_FILE, to_dict(experiment))


def refuse_another(directory: Path, experiment: Experiment) -> None:
    """Check that ``directory`` is not another experiment's.

    Raises:
        InputError: if it belongs to another configuration; the message says what differs.
    """
    if not (directory / CONFIG_FILE).exists():
        return
    found = load_experiment(directory)
    changes = differences(to_dict(found.config), to_dict(experiment.config))
    if found.config.data.corpus.name != experiment.config.data.corpus.name:
        # Another corpus differs in all that it is made of; its name says so.
        corpus = "data.corpus."
        changes = [x for x in changes if not x.startswith(corpus) or x.startswith(f"{corpus}name:")]
    if changes:
        raise InputError(
            f"{directory} belongs to another configuration ({'; '.join(changes)}): "
            "choose another --directory, or remove this one"
        )
