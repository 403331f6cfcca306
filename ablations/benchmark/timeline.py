"""When a fleet's cells started, trained, ended and were published, as their files tell it."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from ablations.runner.attempts import newest
from experiments.run.attempt import read_attempt
from experiments.run.progress import Progress, read_progress
from experiments.run.results import RESULT_FILE

# Of a run of about a minute; only a display depends on it.
_SCORING_SHARE = 0.1


@dataclass(slots=True)
class Marks:
    """Seconds since the epoch at which a cell's process was started, its first training step was
    done, its result was written, and that was in the cell's own place; None as long as unseen.
    """

    started_at: float | None = None
    first_step_at: float | None = None
    written_at: float | None = None
    published_at: float | None = None


class Timeline:
    """What is seen of the cells of those ``names`` below ``root``, where others work on them."""

    def __init__(self, root: Path, names: Sequence[str]) -> None:
        self.marks = {name: Marks() for name in names}
        self._root = root
        self._shares = dict.fromkeys(names, 0.0)

    @property
    def done(self) -> float:
        """How many runs' worth of work all cells together have done, about."""
        return sum(self._shares.values())

    def look(self) -> None:
        """Note what has come about since the last call; called many times a second."""
        for name, marks in self.marks.items():
            if marks.published_at is None:
                self._look_at(name, marks)

    def _look_at(self, name: str, marks: Marks) -> None:
        stem = self._root / name
        published_at = time.time() if (stem / RESULT_FILE).exists() else None
        directory = newest(stem)
        if directory is None:
            return
        attempt, progress = read_attempt(directory), read_progress(directory)
        if attempt is not None:
            marks.started_at = attempt.started_at
        if progress is not None:
            self._shares[name] = max(self._shares[name], _share(progress))
            # It is written at the first step, and then stands for a second.
            if progress.stage == "train" and progress.step == 1:
                marks.first_step_at = progress.updated_at
            if progress.stage == "done":
                marks.written_at = progress.updated_at
        marks.published_at = published_at


def _share(progress: Progress) -> float:
    """How much of a run is done."""
    within = progress.step / max(1, progress.max_steps)
    match progress.stage:
        case "train":
            return (1 - _SCORING_SHARE) * within
        case "evaluate":
            return 1 - _SCORING_SHARE * (1 - within)
        case "done":
            return 1.0
        case _:
            return 0.0
