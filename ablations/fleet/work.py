"""What a fleet works on, as far as the engine has to know: cells with names, and their ends."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Protocol

import optuna
from optuna.trial import FrozenTrial

from experiments.experiment import Experiment


class Work(Protocol):
    """A table's cells, or a search's trials. A cell's name is its path below ``root`` too."""

    root: Path
    directions: Sequence[str]
    sampler: optuna.samplers.BaseSampler
    pruner: optuna.pruners.BasePruner

    @property
    def study(self) -> str:
        """The name of Optuna's study."""
        ...

    @property
    def title(self) -> str:
        """What a person is told it is."""
        ...

    @property
    def names(self) -> Sequence[str]:
        """All cells, those first that are to start first; more may come while a fleet works."""
        ...

    def describe(self) -> Mapping[str, Any]:
        """All of it as an object of JSON, for those who see the storage but not the directory."""
        ...

    def is_done(self, directory: Path) -> bool:
        """Whether a cell has come to its end, by the files in its directory."""
        ...

    def parameters(self, name: str) -> Mapping[str, Any]:
        """Optuna's parameters of a cell that was begun; none where there are none to keep."""
        ...

    def experiment(self, name: str, trial: optuna.Trial) -> Experiment | None:
        """What is trained for the cell; a search samples it here, or finds that it cannot be
        trained, leaves that as its end, and returns None.
        """
        ...

    def values(self, directory: Path) -> Sequence[float] | None:
        """Optuna's values of a finished cell; None where they are not finite."""
        ...

    def finished_trial(self, name: str) -> FrozenTrial | None:
        """A finished cell as a trial of a study that has forgotten it; None where its values are
        not finite.
        """
        ...

    def reports(self, directory: Path) -> Mapping[int, float]:
        """What a run tells on its way by global step, to be pruned by; a table's tells nothing."""
        ...

    def prune(self, directory: Path, step: int, value: float) -> None:
        """Leave in an attempt's directory what makes the cell count as done without a result."""
        ...

    def write_report(self) -> None:
        """Write what there is to read, finished or not."""
        ...

    def announce(self) -> None:
        """Print what was written.

        Raises:
            InputError: if all that was done is in vain.
        """
        ...
