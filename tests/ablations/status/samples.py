"""Attempts in every state, left as a fleet leaves them."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

from experiments.records.attempt import Attempt, Failure, write_attempt
from experiments.records.progress import Progress, RunState
from transformer.config import to_dict
from transformer.files import write_json

CRASH = Failure(
    attempt=1, reason="exit code 1: RuntimeError: it broke", lines=("in line 3", "it broke"), at=7.0
)


def begin(
    root: Path, cell: str, progress: Progress | None = None, number: int = 1, **facts: Any
) -> Path:
    """An attempt on ``node-a``, begun 50 seconds ago; its directory."""
    directory = root / f"{cell}.attempt-{number}"
    directory.mkdir(parents=True)
    defaults: dict[str, Any] = {"worker": "node-a:17:1:x", "started_at": time.time() - 50}
    attempt = Attempt(cell=cell, number=number, host="node-a", **defaults | facts)
    write_attempt(directory, attempt)
    if progress is not None:
        write_json(directory / "progress.json", to_dict(progress))
    return directory


def training(step: int, seconds_ago: float = 1.0, **facts: Any) -> Progress:
    """A run in the middle of its 1,500 steps."""
    updated_at = time.time() - seconds_ago
    return Progress(
        stage=RunState.TRAIN, step=step, max_steps=1_500, updated_at=updated_at, **facts
    )
