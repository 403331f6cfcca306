"""The runs of a directory, as the driver sees a table or a search."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal, Protocol

import optuna
from optuna.trial import FrozenTrial

from ablations.runs.attempts import Ended
from experiments.records.experiment import Experiment


@dataclass(frozen=True, slots=True, kw_only=True)
class StudySettings:
    """The arguments of Optuna's study; ``metrics`` name the values of a trial."""

    name: str
    directions: Sequence[Literal["minimize", "maximize"]]
    metrics: Sequence[str]
    sampler: optuna.samplers.BaseSampler
    pruner: optuna.pruners.BasePruner


class Cells(Protocol):
    """The rows of a table with each seed, or the trials of a search.

    A cell's name is also the path of its run below ``root``.
    """

    root: Path

    @property
    def names(self) -> Sequence[str]:
        """All cells, in the order in which to start them."""
        ...

    @property
    def title(self) -> str:
        """The title that users see."""
        ...

    @property
    def study(self) -> StudySettings:
        """How Optuna sees the cells."""
        ...

    @property
    def is_search(self) -> bool:
        """Whether a run may be pruned, and one that diverged has ended for good."""
        ...

    def name_of(self, trial: FrozenTrial) -> str:
        """The cell of a trial."""
        ...

    def restore(self, known: Mapping[str, FrozenTrial]) -> list[FrozenTrial]:
        """All trials that the files tell of, in order; those of ``known`` that still fit as they
        are.
        """
        ...

    def comparable(self, curve: Mapping[int, float]) -> Mapping[int, float]:
        """Those of a run's perplexities by step at which it may be pruned."""
        ...

    def ask(self, study: optuna.Study, name: str) -> optuna.Trial:
        """A new trial for a cell."""
        ...

    def experiment(self, name: str, trial: optuna.Trial) -> Experiment:
        """The configuration to train."""
        ...

    def to_trial(self, name: str, ended: Ended) -> FrozenTrial | None:
        """A run that has ended as a complete or pruned trial; None if its values are not finite."""
        ...
