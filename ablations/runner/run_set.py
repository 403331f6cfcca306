"""What the runner must know about a table or a search: which runs it has and how each ends."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Literal, Protocol

import optuna
from optuna.trial import FrozenTrial

from experiments.run.experiment import Experiment

Direction = Literal["minimize", "maximize"]


class RunSet(Protocol):
    """The runs of a table or a search. A run's name is also its path below ``root``."""

    root: Path
    sampler: optuna.samplers.BaseSampler
    pruner: optuna.pruners.BasePruner

    @property
    def study(self) -> str:
        """The name of the Optuna study."""
        ...

    @property
    def title(self) -> str:
        """The title that users see."""
        ...

    @property
    def metrics(self) -> Sequence[str]:
        """The names of the values of a trial."""
        ...

    @property
    def directions(self) -> Sequence[Direction]:
        """Which way each of these is better."""
        ...

    @property
    def names(self) -> Sequence[str]:
        """All runs, in the order in which to start them; the list may grow while workers run."""
        ...

    def describe(self) -> Mapping[str, Any]:
        """Describe the set as a JSON object, for readers of the database alone."""
        ...

    def is_done(self, directory: Path) -> bool:
        """Whether the files in ``directory`` show that its run has ended for good."""
        ...

    def parameters(self, name: str) -> Mapping[str, Any]:
        """The Optuna parameters that a run already has; empty if they are still to be sampled."""
        ...

    def attributes(self, name: str) -> Mapping[str, Any]:
        """The attributes of a run's trials: its name as ``cell``, and what helps to read them in
        optuna-dashboard.
        """
        ...

    def experiment(self, name: str, trial: optuna.Trial) -> Experiment | None:
        """The configuration to train. A search samples it here; where it cannot be trained, it
        records that as the run's end and returns None.
        """
        ...

    def finished_trial(self, name: str) -> FrozenTrial | None:
        """A run that is done as a complete or pruned trial; None if its values are not finite."""
        ...

    def reports(self, directory: Path) -> Mapping[int, float]:
        """Intermediate values by step, on which a run may be pruned; empty for a table."""
        ...

    def diverge(self, directory: Path, step: int) -> None:
        """Record in an attempt's directory that training diverged, if that counts as its end."""
        ...

    def prune(self, directory: Path, step: int, value: float) -> None:
        """Record in an attempt's directory that it was pruned, which makes the run done."""
        ...
