"""Where a run is to end before its configuration says so."""

from __future__ import annotations

from dataclasses import dataclass

from experiments.run.experiment import Experiment
from experiments.run.results import Result
from transformer.errors import InputError


@dataclass(frozen=True, kw_only=True, slots=True)
class Limits:
    """Where training ends sooner than configured; a later run with wider ones goes on there."""

    max_steps: int | None = None
    max_minutes: float | None = None

    def __post_init__(self) -> None:
        for name, value in (("max_steps", self.max_steps), ("max_minutes", self.max_minutes)):
            if value is not None and not value > 0:  # which nan is not either
                raise InputError(f"{name} is {value}, but must be above 0")

    def steps(self, experiment: Experiment) -> int:
        """The step at which training ends."""
        configured = experiment.config.training.max_steps
        return configured if self.max_steps is None else min(self.max_steps, configured)

    @property
    def seconds(self) -> float | None:
        """The seconds of training after which it ends."""
        return None if self.max_minutes is None else 60.0 * self.max_minutes

    def reached_by(self, result: Result, experiment: Experiment) -> bool:
        """Whether a finished run has nothing left to train."""
        out_of_time = self.seconds is not None and result.train_seconds >= self.seconds
        return result.steps >= self.steps(experiment) or out_of_time
