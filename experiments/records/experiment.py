"""An experiment: a configuration with a name, in ``config.json``."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

from experiments.records.result import Result
from transformer.config import Config, from_dict
from transformer.errors import InputError
from transformer.files import read_json

# Where a run's metrics are logged, besides metrics.csv.
Log = Literal["wandb", "tensorboard", "none"]
CONFIG_FILE = "config.json"
DATA_FILE = "data.json"
# The source of the user's own classes, as it was when the run began.
SOURCE_FILE = "source.json"
# Where the files with that source are on this machine; never copied.
PLACES_FILE = "source-places.json"
CHECKPOINTS = "checkpoints"
# Where an export says from which weights it was made.
EXPORT_FILE = "export.json"
# Where an export whose format has a config.json of its own keeps the experiment.
EXPERIMENT_FILE = "experiment.json"
# Where a search writes its best configuration, in its directory.
BEST_FILE = "best.json"


@dataclass(frozen=True, kw_only=True, slots=True)
class Experiment:
    """A configuration with a name.

    ``splits`` are scored at the end, if the corpus has them; ``valid`` must be among them.
    ``group`` and ``tags`` sort the runs in W&B, ``labels`` are added to the settings there, and
    ``reported`` are the paper's scores by name. ``own_measures`` are the user's functions that
    score the translations of the validation set, as :func:`transformer.variant_name` names them.
    """

    name: str
    description: str
    config: Config
    splits: tuple[str, ...] = ("valid", "test")
    group: str | None = None
    tags: tuple[str, ...] = ()
    labels: dict[str, int | float | str] = field(default_factory=dict)
    reported: dict[str, float] = field(default_factory=dict)
    own_measures: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        if "valid" not in self.splits:
            raise InputError(f"splits are {self.splits}, but valid must be among them")


@dataclass(frozen=True, kw_only=True, slots=True)
class Limits:
    """Where training ends sooner than configured; a later run with wider limits continues it."""

    max_steps: int | None = None
    """stop after N steps, without changing the schedule; a later call continues [default: none]"""

    max_minutes: float | None = None
    """stop after M minutes of training [default: none]"""

    def __post_init__(self) -> None:
        for name, value in (("max_steps", self.max_steps), ("max_minutes", self.max_minutes)):
            if value is not None and not value > 0:  # also refuses nan
                raise InputError(f"{name} is {value}, but must be above 0")

    @property
    def seconds(self) -> float | None:
        return None if self.max_minutes is None else 60.0 * self.max_minutes

    def steps(self, configured: int) -> int:
        """The step at which training ends, where ``configured`` is the last."""
        return configured if self.max_steps is None else min(self.max_steps, configured)

    def reached(self, result: Result, configured: int) -> bool:
        """Whether nothing is left to train after ``result``."""
        out_of_time = self.seconds is not None and result.train_seconds >= self.seconds
        has_ended = result.steps >= self.steps(configured) or result.diverged_at is not None
        return has_ended or out_of_time


@dataclass(frozen=True, kw_only=True, slots=True)
class DecodingOptions:
    """Settings of decoding that replace the experiment's own."""

    average: int | None = None
    """how many of the last checkpoints to average [default: the experiment's]"""

    beam_size: int | None = None
    """size of the beam; 1 is greedy search [default: the experiment's]"""

    length_penalty: float | None = None
    """alpha in the paper's length penalty [default: the experiment's]"""


def load_experiment(directory: Path) -> Experiment:
    """Read the experiment that a run's directory belongs to."""
    path = directory / CONFIG_FILE
    if not path.is_file():
        runs = (f"*/{CONFIG_FILE}", f"*/*/{CONFIG_FILE}")  # of a search, of a table
        below = sorted(path for pattern in runs for path in directory.glob(pattern))
        hint = f"; one below it is {below[0].parent}" if below else ""
        raise InputError(
            f"{directory} is not the directory of a run: it has no {CONFIG_FILE}{hint}"
        )
    if is_ctranslate2(directory):
        raise InputError(f"{directory} is an export for CTranslate2: give the run")
    if (directory / "generation_config.json").is_file():
        raise InputError(f"{directory} is an export for transformers: give the run")
    return read_experiment(path)


def is_ctranslate2(directory: Path) -> bool:
    """Whether a folder is an export for CTranslate2."""
    return (directory / "model.bin").is_file()


def load_exported(directory: Path) -> Experiment:
    """Read the experiment of an export for CTranslate2."""
    path = directory / EXPERIMENT_FILE
    if not path.is_file():
        raise InputError(
            f"{directory} has no {EXPERIMENT_FILE}: an earlier version wrote it; export it again"
        )
    return read_experiment(path)


def read_experiment(path: Path) -> Experiment:
    """Read an experiment from the JSON file of a run or of a search."""
    return from_dict(Experiment, read_json(path), str(path))
