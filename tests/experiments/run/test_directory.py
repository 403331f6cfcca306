"""A directory belongs to one configuration, and to one process at a time."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import pytest
from filelock import FileLock

import experiments.evaluate.scoring
import experiments.records.ownership
import experiments.run
from experiments.callbacks.checkpoints import Checkpoints
from experiments.callbacks.metrics import LogMetrics
from experiments.catalog.find import EXPERIMENTS
from experiments.records.experiment import load_experiment
from experiments.records.ownership import claim
from experiments.run import execute, run
from tests.experiments.samples import tiny_experiment
from transformer.errors import InputError


def test_another_configuration_is_refused_with_the_differences(finished: Path, folder: Path):
    with pytest.raises(InputError, match=f"{finished} belongs to another configuration") as caught:
        run(tiny_experiment(folder, seed=4, d_ff=19), finished)
    message = str(caught.value)
    assert "model.d_ff: 17 -> 19" in message and "training.seed: 3 -> 4" in message
    assert "dropout" not in message
    assert load_experiment(finished) == tiny_experiment(folder)
    with pytest.raises(InputError) as caught:
        run(EXPERIMENTS["cldr"], finished)
    message = str(caught.value)
    assert "data.corpus.name: 'numbers' -> 'cldr_en_de'" in message
    assert message.count("data.corpus") == 1  # the name says it all
    assert "model.d_ff: 17 -> 256" in message


@pytest.mark.parametrize("below", ["base/seed-1", "trial-0003"])
def test_the_directory_of_a_table_is_refused_and_a_run_in_it_is_named(
    below: str, folder: Path, tmp_path: Path
):
    claim(tmp_path / below, tiny_experiment(folder))
    with pytest.raises(InputError, match=f"no config.json; one below it is {tmp_path / below}$"):
        load_experiment(tmp_path)


def test_a_directory_in_use_is_refused(copy: Path, folder: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(experiments.records.ownership, "_LOCK_SECONDS", 0)
    with (
        FileLock(copy / ".lock"),
        pytest.raises(InputError, match=f"{copy} is in use by another process"),
    ):
        run(tiny_experiment(folder), copy)


@pytest.mark.parametrize(
    ("moment", "anew"),
    [
        ((LogMetrics, "_append"), False),
        ((Checkpoints, "_save_if_due"), True),
        ((experiments.run, "score_run"), True),
        ((experiments.evaluate.scoring, "_result"), True),
    ],
)
def test_a_directory_that_is_removed_ends_the_run_in_one_line(
    moment: tuple[Any, str],
    anew: bool,
    folder: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
):
    directory, original = tmp_path / "run", getattr(*moment)

    def remove_first(*arguments: Any, **settings: Any) -> Any:
        shutil.rmtree(directory, ignore_errors=True)
        if anew:  # as W&B's process does
            directory.mkdir()
        return original(*arguments, **settings)

    monkeypatch.setattr(*moment, remove_first)
    experiment = tiny_experiment(folder, max_steps=2, average_checkpoints=1)
    with pytest.raises(InputError, match=r"was removed, or emptied|has no checkpoint"):
        execute(experiment, directory)
    assert not (directory / "result.json").exists()
