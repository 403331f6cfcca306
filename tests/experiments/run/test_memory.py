"""A run that needs more memory than there is ends in one line that says what to do."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from ablations.runner.endings import ending
from experiments.run.devices import OutOfMemoryError, explain_out_of_memory
from experiments.run.experiment import claim
from experiments.run.progress import read_progress
from tests.experiments.conftest import Command
from tests.experiments.samples import tiny_experiment

# The weights take a quarter of a gigabyte, and as much again their gradient and each moment.
_WIDE = 300_000
_SPARE_BYTES = 700 * 2**20


def test_a_step_that_does_not_fit_is_told_with_what_to_change(
    folder: Path, command: Command, tmp_path: Path
):
    directory = tmp_path / "run"
    claim(directory, tiny_experiment(folder, max_steps=2, d_ff=_WIDE))
    ended = command("ablations.runner.process", directory, stdin=None, spare_memory=_SPARE_BYTES)
    assert ended.code == 1, ended
    assert "Traceback" not in ended.stderr
    said = ended.lines[-1]
    assert said.startswith("out of memory in step 1 of training: ")
    for remedy in ("--accumulate", "--devices-per-trial", "tokens_per_batch"):
        assert remedy in said
    progress = read_progress(directory)
    assert progress is not None
    assert (progress.stage, progress.message) == ("failed", said)
    assert ending(directory, 1, 0.0) == "crashed"


def test_train_says_so_too(folder: Path, command: Command, tmp_path: Path):
    settings = "EXPERIMENT = replace(EXPERIMENT, config=override(EXPERIMENT.config, d_ff=10**13))"
    module = tmp_path / "wide.py"
    module.write_text(
        "from dataclasses import replace\nfrom pathlib import Path\n"
        "from tests.experiments.samples import tiny_experiment\n"
        "from transformer.config import override\n"
        f"EXPERIMENT = tiny_experiment(Path({str(folder)!r}))\n{settings}\n"
    )
    ended = command("experiments", "train", module, "--directory", tmp_path / "run")
    assert ended.code == 1, ended
    assert ended.lines[-1].startswith("out of memory in step 1 of training: ")
    assert "Traceback" not in ended.stderr


@pytest.mark.parametrize(
    "error",
    [
        MemoryError(),
        torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 2.00 GiB"),
        RuntimeError("CUDA error: CUBLAS_STATUS_ALLOC_FAILED when calling `cublasCreate(handle)`"),
    ],
)
def test_it_is_known_by_what_torch_and_cuda_say(error: Exception):
    with (
        pytest.raises(OutOfMemoryError, match="out of memory here: do this"),
        explain_out_of_memory(lambda: "here", "do this"),
    ):
        raise error


def test_another_error_is_left_as_it_is():
    with (
        pytest.raises(RuntimeError, match="a shape does not fit"),
        explain_out_of_memory(lambda: "here", "do this"),
    ):
        raise RuntimeError("a shape does not fit")
