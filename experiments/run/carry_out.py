"""A run from a command to its end, be it early."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from experiments.run.experiment import Experiment, Limits
from experiments.run.progress import Stage


@dataclass(frozen=True, slots=True)
class Outcome:
    """How a run ended: ``done``, ``stopped``, ``refused``, ``diverged`` or ``failed``; why, in one
    line; and the signal that stopped it, if one did, with the step of its last checkpoint.
    """

    stage: Stage
    message: str = ""
    signal: int | None = None
    step: int | None = None


def carry_out(
    experiment: Experiment,
    directory: Path,
    *,
    devices: int | None = None,
    accumulate: int = 1,
    limits: Limits | None = None,
    splits: tuple[str, ...] = ("valid", "test"),
    fenced: bool = False,
) -> Outcome:
    """Run here; an early end that is as it should be is an outcome, not an exception.

    Raises:
        InputError: as ``run`` does.
    """
    from experiments.callbacks.stopping import StoppedError
    from experiments.run.devices import OutOfMemoryError
    from experiments.run.run import run
    from transformer.training.module import NonFiniteError

    try:
        run(
            experiment,
            directory,
            devices=devices,
            accumulate=accumulate,
            limits=limits,
            splits=splits,
            fenced=fenced,
        )
    except StoppedError as error:
        return Outcome("stopped", str(error), error.number, error.step)
    except NonFiniteError as error:
        return Outcome("diverged", f"training diverged: {error}")
    except OutOfMemoryError as error:
        return Outcome("failed", str(error))
    return Outcome("done")
