"""The processes of a run, which train like one; the peak of devices, and a lack of memory."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import time
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
import torch
from lightning.fabric.plugins.environments.slurm import SLURMEnvironment
from lightning.pytorch.accelerators.mps import MPSAccelerator
from torch.distributed.run import get_args_parser

from ablations.runs.process import Job, Place, start
from experiments.devices import (
    OutOfMemoryError,
    World,
    explain_out_of_memory,
    find_world,
    nominal_peak,
)
from experiments.records.experiment import Experiment
from experiments.records.outputs import step_checkpoints
from experiments.records.ownership import STARTER, forget_stray_rank, is_first_rank
from experiments.records.progress import final_state, read_progress
from experiments.records.result import load_result
from experiments.records.run import read_run
from experiments.run import execute
from tests.ablations.runs.processes import Finished, Running
from tests.experiments.conftest import Command, Start
from tests.experiments.samples import result_of, tiny_experiment
from tests.samples import new_run
from transformer.config import to_dict
from transformer.errors import InputError
from transformer.files import write_json
from transformer.model.encoder_decoder import Transformer
from transformer.variant import FILES_VARIABLE, variant_name

# The weights take a quarter of a gigabyte, and so do their gradient and each moment.
_WIDE = 300_000
_SPARE_BYTES = 700 * 2**20


def _launch(monkeypatch: pytest.MonkeyPatch, *, local: int, size: int, rank: int = 0) -> None:
    said = {"LOCAL_WORLD_SIZE": local, "WORLD_SIZE": size, "RANK": rank, "TORCHELASTIC_RUN_ID": 1}
    for name, value in said.items():
        monkeypatch.setenv(name, str(value))


def test_torchrun_or_the_user_decides_the_number_of_processes(monkeypatch: pytest.MonkeyPatch):
    assert (find_world(None), find_world(3)) == (World(1), World(3))
    assert is_first_rank()
    monkeypatch.setenv("SLURM_NTASKS", "2")
    monkeypatch.setenv("SLURM_PROCID", "0")
    forget_stray_rank()
    assert find_world(2) == World(2)  # in a job's script, where Lightning starts them itself
    assert not SLURMEnvironment.detect()
    monkeypatch.setenv("SLURM_STEP_NUM_TASKS", "2")
    with pytest.raises(InputError, match="srun has started several tasks: use srun --ntasks=1"):
        find_world(2)
    monkeypatch.setenv("LOCAL_RANK", "0")
    assert is_first_rank()
    _launch(monkeypatch, local=2, size=4, rank=2)
    assert not is_first_rank()
    _launch(monkeypatch, local=3, size=6)
    assert find_world(None) == find_world(3) == World(3, nodes=2)
    assert find_world(3).size == 6


def test_a_rank_counts_if_torchrun_or_the_first_rank_gave_it(monkeypatch: pytest.MonkeyPatch):
    for name in ("RANK", "LOCAL_RANK", "NODE_RANK", "SLURM_PROCID", "WORLD_SIZE", "MASTER_PORT"):
        monkeypatch.setenv(name, "7")
    monkeypatch.setenv("TORCHELASTIC_RUN_ID", "1")  # alone it is inherited, too
    assert not is_first_rank()
    forget_stray_rank()
    assert is_first_rank() and "MASTER_PORT" not in os.environ and find_world(None) == World(1)
    monkeypatch.setenv("LOCAL_RANK", "1")
    monkeypatch.setenv(STARTER, str(os.getppid()))
    forget_stray_rank()
    assert not is_first_rank()
    monkeypatch.setenv(STARTER, str(os.getpid()))  # of no parent
    with pytest.raises(InputError, match="a process of this run was killed"):
        forget_stray_rank()


def test_a_lost_rank_is_one_line(
    experiment: Experiment, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    def lose(*_: object, **__: object) -> None:
        raise RuntimeError("[pair.cc:553] Connection closed by peer [127.0.0.1]:38797")

    monkeypatch.setattr("experiments.run.run", lose)
    outcome = execute(experiment, tmp_path)
    assert outcome.state == "failed"
    assert "was killed, or ended early: the same command continues" in outcome.message


class _Backward(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: torch.Tensor) -> torch.Tensor:
        return x.clone()

    @staticmethod
    def backward(ctx: Any, *_: Any) -> Any:
        raise StopIteration


@pytest.mark.parametrize(
    ("accumulate", "moment", "said"),
    [
        (1, "forward", "the model's code raised StopIteration"),
        (2, "forward", "the model's code raised StopIteration"),
        (1, "backward", "the model's code raised StopIteration"),
        (2, "backward", "the model's code raised StopIteration"),
        (1, "validation", "the model's code raised StopIteration"),
        (1, "exit", "the model's code called exit(0)"),
    ],
)
def test_what_the_models_code_raises_is_no_end_of_the_training(
    accumulate: int,
    moment: str,
    said: str,
    folder: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
):
    """Lightning takes a StopIteration for the end of the epoch, or of the validation set."""
    states = Transformer.states

    def stop(self: Transformer, *inputs: torch.Tensor) -> torch.Tensor:
        if moment == "exit":
            sys.exit(0)
        if moment == "forward" or (moment == "validation" and not self.training):
            raise StopIteration
        found = states(self, *inputs)
        return _Backward.apply(found) if moment == "backward" else found

    monkeypatch.setattr(Transformer, "states", stop)
    experiment = tiny_experiment(folder, max_steps=2, validate_every_steps=1)
    outcome = execute(experiment, tmp_path, accumulate=accumulate, log="none")
    assert outcome.state == "failed" and outcome.message.endswith(said)
    assert outcome.message.startswith(__file__) == (moment != "exit")
    assert load_result(tmp_path) is None


def _ranks_of(pid: int) -> list[int]:
    found: list[int] = []
    for child in Path(f"/proc/{pid}/task/{pid}/children").read_text().split():
        with suppress(OSError):  # one that looks at the processor ends meanwhile
            if b"train" in Path(f"/proc/{child}/cmdline").read_bytes():
                found.append(int(child))
    return found


@pytest.mark.slow
@pytest.mark.parametrize("at_start", [True, False])
@pytest.mark.parametrize("first", [True, False])
def test_a_killed_rank_ends_the_run_in_one_line(
    at_start: bool, first: bool, folder: Path, tmp_path: Path
):
    directory, errors = tmp_path / "run", tmp_path / "errors"
    experiment = tiny_experiment(folder, max_steps=100_000, log_every_steps=1_000)
    write_json(tmp_path / "long.json", to_dict(experiment))
    options = ["--devices", "2", "--log", "none", "--directory", str(directory)]
    command = [sys.executable, "-m", "experiments", "train", str(tmp_path / "long.json"), *options]
    with errors.open("wb") as stream:
        run = subprocess.Popen(command, stderr=stream)
    while not (others := _ranks_of(run.pid)) or not (at_start or step_checkpoints(directory)):
        assert run.poll() is None, errors.read_text()
        time.sleep(0.05)
    os.kill(run.pid if first else others[0], signal.SIGKILL)
    assert run.wait(60) == (-signal.SIGKILL if first else 1)
    while Path(f"/proc/{others[0]}").exists():
        time.sleep(0.05)
    (line,) = (x for x in errors.read_text().splitlines() if not x.startswith("train: "))
    assert "a process of this run was killed, or ended early: the same command continues" in line


def test_a_wrong_number_of_devices_is_refused(monkeypatch: pytest.MonkeyPatch):
    with pytest.raises(InputError, match="devices is 0, but must be at least 1"):
        find_world(0)
    with monkeypatch.context() as patch:
        patch.setattr("os.cpu_count", lambda: 3)
        assert find_world(192) == World(192)
        with pytest.raises(InputError, match="devices is 193, but may be at most 192"):
            find_world(193)
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
    said = "out of memory here: do this" if reported is OutOfMemoryError else "a shape does"
    with pytest.raises(reported, match=said), explain_out_of_memory(lambda: "here", "do this"):
        raise error


@pytest.mark.slow
def test_a_step_that_does_not_fit_into_memory_says_what_to_change(
    folder: Path, command: Command, tmp_path: Path
):
    directory = tmp_path / "run"
    new_run(directory, tiny_experiment(folder, max_steps=2, d_ff=_WIDE))
    words = ("ablations.runs.entry", directory, "1", "none", "1", "whole")
    ended = command(*words, stdin=None, spare_memory=_SPARE_BYTES)
    assert ended.code == 1, ended
    message = ended.lines[-1]
    assert message.startswith("out of memory in step 1 of training: ")
    assert "Traceback" not in ended.stderr and "--accumulate" in message
    # Encoder and decoder have 300,000 hidden units each: 32 million weights.
    assert "; weights, gradients and moments alone take 509 MB of a device" in message
    progress = read_progress(directory)
    assert progress is not None
    assert (progress.stage, progress.message) == ("failed", message)


def test_a_model_that_does_not_fit_into_memory_is_to_be_made_smaller(
    experiment: Experiment, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    def refuse(_: object) -> None:
        raise RuntimeError("DefaultCPUAllocator: can't allocate memory: you tried to allocate 1 TB")

    monkeypatch.setattr("experiments.train.make_module", refuse)
    outcome = execute(experiment, tmp_path, log="none")
    assert outcome.message.startswith("out of memory making the model: choose a smaller d_model")


UNUSED = """
import torch
from transformer import Transformer

class UnusedTransformer(Transformer):
    def __init__(self, config):
        super().__init__(config)
        self.unused = torch.nn.Parameter(torch.ones(3))
"""


def _run_ranks(begin: Start, *directories: Path) -> list[Finished]:
    """Run two ranks to their end, with what ``torch.distributed.run`` tells each."""
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    running: list[Running] = []
    for rank, directory in enumerate(directories):
        said = {
            "RANK": rank, "LOCAL_RANK": rank, "WORLD_SIZE": 2, "LOCAL_WORLD_SIZE": 2,
            "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": port, "GROUP_RANK": 0,
            "TORCHELASTIC_RUN_ID": "none",
        }  # fmt: skip
        environment = {**os.environ, **{name: str(value) for name, value in said.items()}}
        words = ("ablations.runs.entry", directory, "1", "none", "1", "whole")
        running.append(begin(*words, stdin=None, environment=environment))
    return [each.finish() for each in running]


@pytest.mark.slow
def test_two_ranks_take_the_global_batches_of_one_process(
    folder: Path, begin: Start, tmp_path: Path
):
    """Without dropout, which is drawn separately for each shard of a batch."""
    one, two = tmp_path / "one", tmp_path / "two"
    experiment = tiny_experiment(folder, ("valid",), max_steps=12, dropout=0.0)
    alone = result_of(experiment, one)
    new_run(two, experiment)
    for ended in _run_ranks(begin, two, two):
        assert ended.code == 0, ended
    losses = read_run(two).losses
    assert len(losses) == 12
    # The last of the file's five decimals may be rounded differently.
    assert losses == pytest.approx(read_run(one).losses, abs=1.001e-5)
    together = load_result(two)
    assert together is not None
    assert (together.devices, alone.devices) == (2, 1)
    assert together.source_tokens == alone.source_tokens
    assert together.target_tokens == alone.target_tokens


@pytest.mark.slow
def test_ranks_that_do_not_see_the_same_checkpoints_are_refused(
    experiment: Experiment, unfinished: Path, begin: Start, tmp_path: Path
):
    new_run(fresh := tmp_path / "on another disk", experiment)
    step_checkpoints(unfinished)[-1][1].unlink()
    for ended in _run_ranks(begin, unfinished, fresh):
        assert ended.code == 2 and "on a disk that all machines see" in ended.stderr, ended


def test_torchs_launcher_begins_the_ranks(
    experiment: Experiment, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    given: list[list[str]] = []
    monkeypatch.setattr(
        "ablations.runs.process.subprocess.Popen", lambda command, **_: given.append(command)
    )
    job = Job(root=tmp_path, name="run", experiment=experiment, accumulate=3, log="none")
    start(tmp_path, job, Place(0, (), 2))
    ((_, dash, launcher, *words),) = given
    assert (dash, launcher) == ("-m", "torch.distributed.run")
    parsed = get_args_parser().parse_args(words)
    assert (parsed.standalone, parsed.nproc_per_node, parsed.module) == (True, "2", True)
    assert parsed.training_script == "ablations.runs.entry"
    assert parsed.training_script_args == [str(tmp_path), "3", "none", "1", "weights"]


@pytest.mark.slow
@pytest.mark.parametrize("taken_over", [False, True])
def test_ranks_end_together(
    taken_over: bool, folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    """With a variant that does not use a weight, which DDP would refuse."""
    monkeypatch.setenv(FILES_VARIABLE, "")
    (tmp_path / "mine.py").write_text(UNUSED)
    directory, newer = tmp_path / "seed-3.attempt-1", tmp_path / "seed-3.attempt-2"
    model = variant_name(f"{tmp_path / 'mine.py'}:UnusedTransformer")
    experiment = tiny_experiment(folder, max_steps=100_000, log_every_steps=1_000, model=model)
    new_run(directory, experiment)
    started_at = time.time()
    job = Job(root=tmp_path, name="seed-3", experiment=experiment)
    process = start(directory, job, Place(0, (), 2))
    while not step_checkpoints(directory):
        assert process.poll() is None, (directory / "log.txt").read_text()
        time.sleep(0.05)
    if taken_over:
        directory.rename(newer)
    else:
        os.killpg(process.pid, signal.SIGTERM)
    code = process.wait(30)
    assert process.stdin is not None
    process.stdin.close()
    if taken_over:
        assert not directory.exists()
        assert "another attempt has taken this run over" in (newer / "log.txt").read_text()
        return
    assert final_state(directory, code, started_at) == "stopped"
    progress = read_progress(directory)
    assert progress is not None
    assert step_checkpoints(directory)[-1][0] == progress.step
    assert progress.message == f"stopped at step {progress.step}; the same command continues there"


def test_an_apple_gpu_is_not_used(folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(MPSAccelerator, "is_available", staticmethod(lambda: True))
    assert result_of(tiny_experiment(folder, max_steps=3), tmp_path).steps == 3
