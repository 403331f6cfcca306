"""How far a run has come, as a small file that any process may read while it runs."""

from __future__ import annotations

import re
import time
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import Literal

from experiments.run.files import read_json, write_json
from transformer.config import from_dict, to_dict
from transformer.errors import InputError

# Colours and movements of the cursor, and titles of a window.
_ESCAPES = re.compile(r"\x1b(\[[0-?]*[ -/]*[@-~]|\][^\x07\x1b]*(\x07|\x1b\\))")
PROGRESS_FILE = "progress.json"
Stage = Literal["prepare", "train", "evaluate", "done", "stopped", "refused", "diverged", "failed"]


class RunState(StrEnum):
    """The state of a run, as ``progress.json``, ``status --json`` and the database spell it.

    A process reports ``PREPARE``, ``TRAIN`` and ``EVALUATE`` while it works, and ends as ``DONE``,
    ``STOPPED`` (a signal, after a checkpoint), ``REFUSED`` (bad input), ``DIVERGED`` or ``FAILED``.
    The others describe a run of a table or a search: ``GIVEN_UP`` after too many failures,
    ``PRUNED`` by a search before its last step.
    """

    WAITING = "waiting"
    RUNNING = "running"
    PREPARE = "prepare"
    TRAIN = "train"
    EVALUATE = "evaluate"
    DONE = "done"
    PRUNED = "pruned"
    STOPPED = "stopped"
    REFUSED = "refused"
    DIVERGED = "diverged"
    FAILED = "failed"
    GIVEN_UP = "given up"


@dataclass(frozen=True, kw_only=True, slots=True)
class Progress:
    """``step`` of ``max_steps``; ``tokens_per_second`` counts real target tokens;
    ``seconds_left`` is of the stage; ``updated_at`` is in seconds since the epoch; ``message``
    says why a process ended that did not finish: stopped by a signal, refused its input, failed.
    """

    stage: Stage
    step: int = 0
    max_steps: int = 0
    loss: float | None = None
    tokens_per_second: float | None = None
    seconds_left: float | None = None
    updated_at: float = 0.0
    message: str = ""

    def __post_init__(self) -> None:
        object.__setattr__(self, "message", printable(self.message))


def printable(text: str) -> str:
    """The text without control characters, which could write anything to a terminal."""
    return "".join(
        x if x.isprintable() else " " if x.isspace() else "" for x in _ESCAPES.sub("", text)
    )


def write_progress(directory: Path, progress: Progress) -> None:
    """Replace the progress file."""
    write_json(directory / PROGRESS_FILE, to_dict(progress) | {"updated_at": time.time()})


def read_progress(directory: Path) -> Progress | None:
    """The last progress of the run in ``directory``; None where there is none yet."""
    path = directory / PROGRESS_FILE
    try:
        return from_dict(Progress, read_json(path), str(path)) if path.is_file() else None
    except InputError:
        return None  # only a display depends on it
