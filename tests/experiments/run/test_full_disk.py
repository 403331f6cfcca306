"""A full disk ends a run in one line; once there is room, it continues."""

from __future__ import annotations

from pathlib import Path

import pytest

from experiments.records.checkpoints import step_checkpoints
from experiments.records.experiment import Limits
from experiments.run import run
from tests.experiments.conftest import Command
from tests.experiments.samples import assert_same_end, forget_result, tiny_experiment


def _half_written(directory: Path) -> list[str]:
    return [p.name for p in directory.rglob("*") if ".part" in p.name or ".tmp" in p.name]


def test_a_checkpoint_that_does_not_fit_ends_the_run_in_one_line(
    finished: Path,
    folder: Path,
    command: Command,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
):
    monkeypatch.setenv("WANDB_MODE", "disabled")
    directory = tmp_path / "run"
    run(tiny_experiment(folder), directory, limits=Limits(max_steps=20))
    forget_result(directory)
    _, newest = step_checkpoints(directory)[-1]
    size = newest.stat().st_size
    ended = command("ablations.runs.entry", directory, stdin=None, largest_file=size // 2)
    assert ended.code == 2
    assert ended.lines[-1] == f"[Errno 27] File too large: '{newest.with_stem('step-00000030')}'"
    assert "Traceback" not in ended.stderr
    assert [step for step, _ in step_checkpoints(directory)] == [10, 20]
    assert not _half_written(directory)
    run(tiny_experiment(folder), directory)
    assert_same_end(directory, finished)


def test_data_that_does_not_fit_is_not_left_half_written(
    folder: Path, command: Command, tmp_path: Path
):
    ended = command(
        "experiments", "prepare", f"files:{folder}", "--vocab-size", "59",
        largest_file=1_000, DATA_CACHE=str(tmp_path / "cache"),
    )  # fmt: skip
    assert ended.code == 2, ended
    assert len(ended.lines) == 1, ended
    assert "File too large" in ended.stderr
    kept = [p for p in (tmp_path / "cache").rglob("*") if p.is_file()]
    assert not any(p.stat().st_size for p in kept)
