"""What the files of a fleet's cells tell of their times."""

from __future__ import annotations

from pathlib import Path

import pytest

from ablations.benchmark.timeline import Marks, Timeline
from ablations.runner.attempts import publish
from ablations.tables.table import Cell
from experiments.run.attempt import Attempt, write_attempt
from experiments.run.progress import Progress, read_progress, write_progress
from experiments.run.results import save_result
from tests.ablations.samples import result

CELL = Cell("base", 1)
STEM = "base/seed-1"


@pytest.fixture
def attempt(tmp_path: Path) -> Path:
    """The directory of a cell whose process was started at second 7."""
    directory = tmp_path / "base/seed-1.attempt-1"
    directory.mkdir(parents=True)
    told = Attempt(study="s", cell=STEM, number=1, worker="w", host="h", started_at=7.0)
    write_attempt(directory, told)
    return directory


def told_at(directory: Path, **progress: object) -> float:
    """Write the progress; when that was."""
    write_progress(directory, Progress(max_steps=5, **progress))  # pyright: ignore[reportArgumentType]
    found = read_progress(directory)
    assert found is not None
    return found.updated_at


def test_a_cell_is_followed_from_its_start_to_its_publication(
    tmp_path: Path, attempt: Path
) -> None:
    timeline = Timeline(tmp_path, [STEM, "base/seed-2"])
    timeline.look()
    assert timeline.marks == {STEM: Marks(started_at=7.0), "base/seed-2": Marks()}
    first = told_at(attempt, stage="train", step=1)
    timeline.look()
    told_at(attempt, stage="train", step=3)
    timeline.look()
    assert timeline.marks[STEM] == Marks(started_at=7.0, first_step_at=first)
    assert timeline.done == pytest.approx(0.9 * 3 / 5)
    save_result(attempt, result(CELL))
    written = told_at(attempt, stage="done")
    timeline.look()
    assert timeline.marks[STEM] == Marks(7.0, first, written)  # its process has yet to end
    assert publish(attempt, tmp_path / STEM)
    timeline.look()
    published = timeline.marks[STEM].published_at
    assert published is not None and published >= written
    assert timeline.done == 1.0
    timeline.look()
    assert timeline.marks[STEM] == Marks(7.0, first, written, published)


def test_a_first_step_that_was_missed_is_not_guessed(tmp_path: Path, attempt: Path) -> None:
    timeline = Timeline(tmp_path, [STEM])
    told_at(attempt, stage="train", step=2)
    timeline.look()
    assert timeline.marks[STEM].first_step_at is None


def test_scoring_is_a_part_of_the_run(tmp_path: Path, attempt: Path) -> None:
    timeline = Timeline(tmp_path, [STEM])
    told_at(attempt, stage="evaluate", step=2)
    timeline.look()
    assert timeline.done == pytest.approx(0.9 + 0.1 * 2 / 5)
    told_at(attempt, stage="prepare")  # a bar never goes back
    timeline.look()
    assert timeline.done == pytest.approx(0.94)
