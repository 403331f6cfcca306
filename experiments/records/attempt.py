"""The record of one attempt, written before its process starts."""

from __future__ import annotations

import warnings
from dataclasses import dataclass
from pathlib import Path

from experiments.records.progress import printable
from transformer.config import from_dict, to_dict
from transformer.errors import InputError
from transformer.files import read_json, read_text, write_json

ATTEMPT_FILE = "attempt.json"
WANDB_ID_FILE = "wandb-id.txt"


@dataclass(frozen=True, kw_only=True, slots=True)
class Failure:
    """An attempt that failed: its number, the reason, the last lines of its log, and the time in
    seconds since the epoch.
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
    """The ``number``-th attempt at the run ``cell``.

    The driver, a process of the unique name ``worker``, started it on ``host``, with ``devices``
    (numbers or UUIDs of GPUs; none on the CPU) and ``ranks`` processes, at ``started_at``, in
    seconds since the epoch. ``failures`` are those of earlier attempts, oldest first; ``given_up``
    if there will be no more attempts. ``kills`` counts the attempts in a row that were killed
    before they got beyond step ``furthest``. The run is scored with the training of the run
    ``trained_in``; empty for its own.
    """

    cell: str
    number: int
    worker: str
    host: str
    devices: tuple[int | str, ...] = ()
    ranks: int = 1
    started_at: float
    failures: tuple[Failure, ...] = ()
    given_up: bool = False
    kills: int = 0
    furthest: int = 0
    trained_in: str = ""


def write_attempt(directory: Path, attempt: Attempt) -> None:
    """Write the record of an attempt in place of the one before."""
    write_json(directory / ATTEMPT_FILE, to_dict(attempt))


def read_attempt(directory: Path) -> Attempt | None:
    """Read the attempt in ``directory``; None if there is none or, with a warning, if the file is
    unreadable, since a run can do without it.
    """
    path = directory / ATTEMPT_FILE
    try:
        return from_dict(Attempt, read_json(path), str(path), strict=False)
    except InputError as error:
        if not isinstance(error.__cause__, FileNotFoundError | NotADirectoryError):
            warnings.warn(f"left out: {error}", stacklevel=2)
        return None


def wandb_id(directory: Path) -> str | None:
    """The id of the last W&B run of the run in ``directory``; None if it has none yet."""
    try:
        return read_text(directory / WANDB_ID_FILE).strip() or None
    except (FileNotFoundError, NotADirectoryError):
        return None
