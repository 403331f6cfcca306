"""Times of training steps, relative to the base's."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from ablations.files import STEP_TIMES_FILE
from transformer.config import from_dict, to_dict
from transformer.errors import InputError
from transformer.files import make_directory, read_json, write_json


@dataclass(frozen=True, kw_only=True, slots=True)
class StepTimes:
    """The step times that ``python -m bench.rows`` measured, with all rows in turn with the base on
    one machine; a report's training times may be from different machines.

    ``ratios`` are the rows' step times over the base's, as medians over the ``turns``.

    Raises:
        InputError: if a ratio is not above 0
    """

    device: str
    commit: str
    turns: int
    ratios: Mapping[str, float]

    def __post_init__(self) -> None:
        for row, ratio in self.ratios.items():
            if not 0 < ratio < float("inf"):
                raise InputError(f"the step time of row {row!r} is {ratio} times the base's")

    def save(self, directory: Path) -> None:
        """Write the file next to a table's runs."""
        make_directory(directory)
        write_json(directory / STEP_TIMES_FILE, to_dict(self))


def load_step_times(directory: Path) -> StepTimes | None:
    """The step times of a table's directory, if they were measured."""
    path = directory / STEP_TIMES_FILE
    return from_dict(StepTimes, read_json(path), str(path)) if path.is_file() else None
