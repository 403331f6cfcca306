"""After scoring, a run keeps the weights that were scored; whatever interrupts that, nothing is
lost.
"""

from __future__ import annotations

import dataclasses
import errno
from pathlib import Path
from typing import Any

import pytest
import torch

from ablations.runs.shared import has_training, take_training
from experiments.callbacks import checkpoints as module
from experiments.evaluate.trained import load_trained
from experiments.records.checksums import verify_files
from experiments.records.experiment import Experiment, Limits
from experiments.records.outputs import step_checkpoints
from experiments.records.result import load_result
from experiments.run import run
from tests.experiments.conftest import Command
from tests.experiments.samples import last_checkpoint, outcome, result_of
from transformer.config import override


def kept(directory: Path) -> dict[int, bool]:
    """The steps of the checkpoints, and whether each is whole."""
    return {
        step: bool(torch.load(path, weights_only=True)["optimizer_states"])
        for step, path in step_checkpoints(directory)
    }


@pytest.fixture
def scored(unfinished: Path, experiment: Experiment) -> Path:
    """A run that was scored, and has kept weights only."""
    run(experiment, unfinished, keep_checkpoints=False)
    return unfinished


def test_the_weights_that_were_scored_stay_and_do_what_whole_checkpoints_do(
    scored: Path, finished: Path, experiment: Experiment
) -> None:
    assert kept(finished) == {30: True, 40: True} and kept(scored) == {30: False, 40: False}
    sizes = [sum(x.stat().st_size for _, x in step_checkpoints(y)) for y in (scored, finished)]
    assert sizes[0] < 0.5 * sizes[1]
    assert outcome(scored) == outcome(finished)
    assert not [path for path, problem in verify_files(scored) if problem]
    ours, theirs = (load_trained(x).model.state_dict() for x in (scored, finished))
    for name, weight in theirs.items():
        torch.testing.assert_close(ours[name], weight, rtol=0, atol=0)
    before = load_result(scored)
    assert result_of(experiment, scored, keep_checkpoints=False) == before
    (scored / "result.json").unlink()  # to be scored again
    run(experiment, scored, keep_checkpoints=False)
    assert outcome(scored) == outcome(finished)


def test_fewer_are_kept_where_fewer_are_averaged_but_those_that_other_rows_need(
    unfinished: Path, experiment: Experiment
) -> None:
    config = override(experiment.config, average_checkpoints=1)
    also = override(config, also_average=2)
    module.keep_weights(unfinished, also.training)
    assert kept(unfinished) == {30: False, 40: False}
    module.keep_weights(unfinished, config.training, 2)
    assert kept(unfinished) == {30: False, 40: False}
    module.keep_weights(unfinished, config.training)
    assert kept(unfinished) == {40: False}


@pytest.mark.slow
@pytest.mark.parametrize("saved", [0, 1, 2])
def test_a_kill_between_scoring_and_removing_loses_nothing(
    saved: int,
    unfinished: Path,
    finished: Path,
    experiment: Experiment,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Before each checkpoint is replaced, and before the result is saved."""
    save, count = module.AtomicCheckpointIO.save_checkpoint, 0

    def die(*given: Any) -> None:
        nonlocal count
        if count == saved:
            raise KeyboardInterrupt
        count += 1
        save(*given)

    with monkeypatch.context() as patch:
        patch.setattr(module.AtomicCheckpointIO, "save_checkpoint", die)
        patch.setattr("experiments.run.record_checksums", die)
        with pytest.raises(KeyboardInterrupt):
            run(experiment, unfinished, keep_checkpoints=False)
    assert load_result(unfinished) is None and sum(kept(unfinished).values()) == 2 - saved
    run(experiment, unfinished, keep_checkpoints=False)
    assert kept(unfinished) == {30: False, 40: False}
    assert outcome(unfinished) == outcome(finished)


def test_on_a_full_disk_they_stay_whole_and_the_result_is_saved(
    unfinished: Path, finished: Path, experiment: Experiment, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: object) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(module.AtomicCheckpointIO, "save_checkpoint", refuse)
    with pytest.warns(UserWarning, match="some checkpoints are kept whole: .*No space left"):
        run(experiment, unfinished, keep_checkpoints=False)
    assert kept(unfinished) == {30: True, 40: True}
    assert outcome(unfinished) == outcome(finished)


@pytest.mark.slow
def test_a_run_that_a_limit_ended_keeps_all_to_continue(
    finished: Path, experiment: Experiment, tmp_path: Path
) -> None:
    run(experiment, tmp_path / "run", limits=Limits(max_steps=13), keep_checkpoints=False)
    assert kept(tmp_path / "run") == {10: True, 13: True}
    run(experiment, tmp_path / "run", keep_checkpoints=False)
    assert outcome(tmp_path / "run") == outcome(finished)


def test_a_run_that_has_lost_its_last_checkpoint_and_has_weights_alone_starts_over(
    scored: Path, finished: Path, experiment: Experiment
) -> None:
    (scored / "result.json").unlink()
    newest = scored / "checkpoints/step-00000040.ckpt"
    newest.write_bytes(newest.read_bytes()[:1_001])
    with (
        pytest.warns(UserWarning, match="is damaged: continuing from the one before it"),
        pytest.warns(UserWarning, match=r"30\.ckpt has only the weights: starting over"),
    ):
        run(experiment, scored)
    assert outcome(scored) == outcome(finished)
    assert kept(scored) == {30: True, 40: True}
    assert (newest.parent / "step-00000030.ckpt.weights").is_file()


def test_another_row_is_scored_with_kept_weights(
    scored: Path, experiment: Experiment, tmp_path: Path
) -> None:
    config = override(experiment.config, beam_size=2, average_checkpoints=1)
    new = tmp_path / "new"
    new.mkdir()
    assert has_training(scored, config)
    assert take_training(new, config, [scored]) == scored
    row = dataclasses.replace(experiment, config=config)
    result = result_of(row, new, keep_checkpoints=False, checkpoints=2)
    assert result.steps == 40 and kept(new) == kept(scored) == {30: False, 40: False}
    assert last_checkpoint(new)["global_step"] == 40


@pytest.mark.slow
def test_train_keeps_weights_and_all_with_the_option(
    folder: Path, call: Command, tmp_path: Path
) -> None:
    found: list[dict[int, bool]] = []
    for option in ((), ("--keep-checkpoints",)):
        directory = tmp_path / f"run{len(option)}"
        sizes = ("d_model=26", "num_layers=1", "d_ff=17", "max_steps=3", "checkpoint_every_steps=2")
        settings: list[str] = [word for size in sizes for word in ("--set", size)]
        words = ("train", f"files:{folder}", "--vocab-size", "61", "--directory", directory)
        average = ("--set", "average_checkpoints=1", "--log", "none")
        assert call(*words, *settings, *average, *option).code == 0
        found.append(kept(directory))
    assert found == [{3: False}, {2: True, 3: True}]
