"""Execute one run in this process and report how it ended."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from experiments.run.experiment import Experiment, Limits, Log
from experiments.run.progress import RunState


@dataclass(frozen=True, slots=True)
class Outcome:
    """How a run ended and why, in one line; for a signal, its number and the checkpoint's step."""

    state: RunState
    message: str = ""
    signal: int | None = None
    step: int | None = None


def execute(
    experiment: Experiment,
    directory: Path,
    *,
    devices: int | None = None,
    accumulate: int = 1,
    limits: Limits | None = None,
    fenced: bool = False,
    log: Log = "wandb",
) -> Outcome:
    """Call :func:`experiments.run.run.run` and turn expected early ends into an outcome.

    Raises:
        InputError: as ``run`` does.
    """
    from experiments.callbacks.stopping import StoppedError
    from experiments.run.devices import OutOfMemoryError
    from experiments.run.run import run
    from transformer.training.optimizer import NonFiniteError

    try:
        run(
            experiment,
            directory,
            devices=devices,
            accumulate=accumulate,
            limits=limits,
            fenced=fenced,
            log=log,
        )
    except StoppedError as error:
        return Outcome(RunState.STOPPED, str(error), error.number, error.step)
    except NonFiniteError as error:
        return Outcome(RunState.DIVERGED, f"training diverged: {error}")
    except OutOfMemoryError as error:
        return Outcome(RunState.FAILED, str(error))
    return Outcome(RunState.DONE)
