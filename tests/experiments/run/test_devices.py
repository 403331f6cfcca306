"""The number of processes, the nominal peak of devices, and a lack of memory."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from experiments.devices import (
    OutOfMemoryError,
    World,
    explain_out_of_memory,
    find_world,
    nominal_peak,
)
from experiments.records.ownership import claim, is_first_rank
from experiments.records.progress import read_progress
from tests.experiments.conftest import Command
from tests.experiments.samples import tiny_experiment
from transformer.errors import InputError

# The weights take a quarter of a gigabyte, and so do their gradient and each moment.
_WIDE = 300_000
_SPARE_BYTES = 700 * 2**20


def _launch(monkeypatch: pytest.MonkeyPatch, *, local: int, size: int, rank: int = 0) -> None:
    values = {"LOCAL_WORLD_SIZE": local, "WORLD_SIZE": size, "RANK": rank}
    for name, value in values.items():
        monkeypatch.setenv(name, str(value))
    monkeypatch.setenv("TORCHELASTIC_RUN_ID", "none")


def test_torchrun_or_the_user_decides_the_number_of_processes(monkeypatch: pytest.MonkeyPatch):
    assert (find_world(None), find_world(3)) == (World(1), World(3))
    assert is_first_rank()
    monkeypatch.setenv("LOCAL_RANK", "0")
    assert is_first_rank()
    _launch(monkeypatch, local=2, size=4, rank=2)
    assert not is_first_rank()
    _launch(monkeypatch, local=3, size=6)
    assert find_world(None) == find_world(3) == World(3, nodes=2)
    assert find_world(3).size == 6


def test_a_wrong_number_of_devices_is_refused(monkeypatch: pytest.MonkeyPatch):
    with pytest.raises(InputError, match="devices is 0, but must be at least 1"):
        find_world(0)
    with monkeypatch.context() as patch:
        patch.setattr("torch.cuda.device_count", lambda: 2)
        with pytest.raises(InputError, match=r"devices is 3, but this machine has 2 GPU"):
            find_world(3)
    _launch(monkeypatch, local=3, size=3)
    with pytest.raises(InputError, match="devices is 2, but torchrun has started 3 processes"):
        find_world(2)
    _launch(monkeypatch, local=3, size=5)
    with pytest.raises(InputError, match="3 processes here and 5 in all"):
        find_world(None)


@pytest.mark.parametrize(
    ("device", "fp32", "bf16"),
    [
        ("Tesla K80", 2.8e12, None),
        ("NVIDIA GeForce RTX 4090", 82.6e12, 165.2e12),
        # not the devices whose names these begin with
        ("NVIDIA GeForce RTX 4090 Laptop GPU", None, None),
        ("NVIDIA H100 80GB HBM3 MIG 1g.10gb", None, None),
        ("Intel(R) Xeon(R) Processor @ 2.50GHz, 2 threads", None, None),
    ],
)
def test_the_nominal_peak_depends_on_device_and_precision(
    device: str, fp32: float | None, bf16: float | None
):
    assert (nominal_peak(device, "fp32"), nominal_peak(device, "bf16")) == (fp32, bf16)


@pytest.mark.parametrize(
    ("error", "reported"),
    [
        (MemoryError(), OutOfMemoryError),
        (torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 2 GiB"), OutOfMemoryError),
        (RuntimeError("CUDA error: CUBLAS_STATUS_ALLOC_FAILED when calling"), OutOfMemoryError),
        (RuntimeError("a shape does not fit"), RuntimeError),
    ],
)
def test_lack_of_memory_is_recognised_and_other_errors_are_kept(
    error: Exception, reported: type[Exception]
):
    message = "out of memory here: do this" if reported is OutOfMemoryError else "a shape does"
    with (
        pytest.raises(reported, match=message),
        explain_out_of_memory(lambda: "here", "do this"),
    ):
        raise error


def test_a_step_that_does_not_fit_into_memory_says_what_to_change(
    folder: Path, command: Command, tmp_path: Path
):
    directory = tmp_path / "run"
    claim(directory, tiny_experiment(folder, max_steps=2, d_ff=_WIDE))
    ended = command(
        "ablations.runs.entry", directory, "1", "none", stdin=None, spare_memory=_SPARE_BYTES
    )
    assert ended.code == 1, ended
    message = ended.lines[-1]
    assert message.startswith("out of memory in step 1 of training: ")
    assert "Traceback" not in ended.stderr and "--accumulate" in message
    progress = read_progress(directory)
    assert progress is not None
    assert (progress.stage, progress.message) == ("failed", message)
