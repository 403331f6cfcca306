"""One start of a run that others may take over: who carries it out, and what went before.

A fleet writes it into the run's directory before the process starts; it imports no torch.
"""

from __future__ import annotations

import warnings
from dataclasses import dataclass
from pathlib import Path

from experiments.run.files import read_json, write_json
from experiments.run.progress import printable
from transformer.config import from_dict, to_dict
from transformer.errors import InputError

ATTEMPT_FILE = "attempt.json"
WANDB_ID_FILE = "wandb-id.txt"


@dataclass(frozen=True, kw_only=True, slots=True)
class Failure:
    """An attempt that ended with an exception: its number, why, the last lines of its log, and
    when, in seconds since the epoch.
    """

    attempt: int
    reason: str
    lines: tuple[str, ...]
    at: float

    def __post_init__(self) -> None:
        object.__setattr__(self, "reason", printable(self.reason))
        object.__setattr__(self, "lines", tuple(map(printable, self.lines)))


@dataclass(frozen=True, kw_only=True, slots=True)
class Attempt:
    """The ``number``-th attempt at ``cell`` of the Optuna study ``study``.

    ``worker`` is the unique name of the worker that started it, on ``host``, with ``devices``
    (numbers or UUIDs of its GPUs, none on the CPU) and ``ranks`` processes; ``started_at`` is in
    seconds since the epoch. ``failures`` are those of earlier attempts; ``given_up`` says there
    will be no more; ``wandb_ids`` are the W&B runs of earlier attempts, oldest first.
    ``kills`` counts the attempts in a row that were killed without coming beyond step ``furthest``.
    """

    study: str
    cell: str
    number: int
    worker: str
    host: str
    devices: tuple[int | str, ...] = ()
    ranks: int = 1
    started_at: float
    failures: tuple[Failure, ...] = ()
    given_up: bool = False
    wandb_ids: tuple[str, ...] = ()
    kills: int = 0
    furthest: int = 0


def write_attempt(directory: Path, attempt: Attempt) -> None:
    """Replace the file."""
    write_json(directory / ATTEMPT_FILE, to_dict(attempt))


def read_attempt(directory: Path) -> Attempt | None:
    """The attempt in ``directory``; None where there is none, no such directory, or, with a
    warning, a file that cannot be read: the run can do without what it says.
    """
    path = directory / ATTEMPT_FILE
    try:
        return from_dict(Attempt, read_json(path), str(path))
    except InputError as error:
        if not isinstance(error.__cause__, FileNotFoundError | NotADirectoryError):
            warnings.warn(f"left out: {error}", stacklevel=2)
        return None


def wandb_id(directory: Path) -> str | None:
    """The W&B run that the run in ``directory`` tracks, or tracked last; None before the first.

    Who takes an attempt over adds it to ``wandb_ids`` of the next.
    """
    try:
        return (directory / WANDB_ID_FILE).read_text(encoding="utf-8").strip() or None
    except (FileNotFoundError, NotADirectoryError):
        return None
