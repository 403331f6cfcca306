"""What a fleet works on, as far as the engine has to know: cells with names, and their ends."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Literal, Protocol

import optuna
from optuna.trial import FrozenTrial

from experiments.run.experiment import Experiment

Direction = Literal["minimize", "maximize"]


class Work(Protocol):
    """A table's cells, or a search's trials. A cell's name is its path below ``root`` too."""

    root: Path
    directions: Sequence[Direction]
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

    def finished_trial(self, name: str) -> FrozenTrial | None:
        """A cell that is done as Optuna's trial, complete or pruned; None where its values are
        not finite.
        """
        ...

    def reports(self, directory: Path) -> Mapping[int, float]:
        """What a run tells on its way by global step, to be pruned by; a table's tells nothing."""
        ...

    def diverge(self, directory: Path, step: int) -> None:
        """Leave in an attempt's directory what comes of a training that diverged at ``step``: it
        would do so again. Nothing, where that is a failure.
        """
        ...

    def write_report(self) -> None:
        """Write what is known so far into the directory, for people to read."""
        ...

    def announce(self) -> None:
        """Print it, and where it is.

        Raises:
            InputError: if nothing has come of all that was done.
        """
        ...

    def prune(self, directory: Path, step: int, value: float) -> None:
        """Leave in an attempt's directory what makes the cell count as done without a result."""
        ...
