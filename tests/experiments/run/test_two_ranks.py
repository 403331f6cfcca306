"""Two processes train like one process that accumulates, including dropout."""

from __future__ import annotations

import os
import signal
import socket
import time
from pathlib import Path

import pytest
from lightning.pytorch.accelerators.mps import MPSAccelerator
from torch.distributed.run import get_args_parser

from ablations.runs.process import Job, Place, start
from experiments.records.outputs import step_checkpoints, training_losses
from experiments.records.ownership import claim
from experiments.records.progress import final_state, read_progress
from experiments.records.result import load_result
from tests.ablations.runs.processes import Running
from tests.experiments.conftest import Start
from tests.experiments.samples import result_of, tiny_experiment
from transformer.variant import FILES_VARIABLE, variant_name

UNUSED = """
import torch
from transformer import Transformer

class UnusedTransformer(Transformer):
    def __init__(self, config):
        super().__init__(config)
        self.unused = torch.nn.Parameter(torch.ones(3))
"""


def _begin_rank(begin: Start, directory: Path, rank: int, port: int) -> Running:
    """Begin one of two ranks, with what ``torch.distributed.run`` tells each."""
    said = {
        "RANK": rank, "LOCAL_RANK": rank, "WORLD_SIZE": 2, "LOCAL_WORLD_SIZE": 2, "GROUP_RANK": 0,
        "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": port, "TORCHELASTIC_RUN_ID": "none",
    }  # fmt: skip
    environment = {**os.environ, **{name: str(value) for name, value in said.items()}}
    words = ("ablations.runs.entry", directory, "1", "none")
    return begin(*words, stdin=None, environment=environment)


def test_two_ranks_take_the_global_batches_of_one_process(
    folder: Path, begin: Start, tmp_path: Path
):
    """Without dropout, which is drawn separately for each shard of a batch."""
    one, two = tmp_path / "one", tmp_path / "two"
    experiment = tiny_experiment(folder, ("valid",), max_steps=12, dropout=0.0)
    alone = result_of(experiment, one)
    claim(two, experiment)
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    for running in [_begin_rank(begin, two, rank, port) for rank in range(2)]:
        ended = running.finish()
        assert ended.code == 0, ended
    losses = training_losses(two)
    assert len(losses) == 12
    # The last of the file's five decimals may be rounded differently.
    assert losses == pytest.approx(training_losses(one), abs=1.001e-5)
    together = load_result(two)
    assert together is not None
    assert (together.devices, alone.devices) == (2, 1)
    assert together.source_tokens == alone.source_tokens
    assert together.target_tokens == alone.target_tokens


def test_torchs_launcher_begins_the_ranks(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    experiment = tiny_experiment(folder)
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
    assert parsed.training_script_args == [str(tmp_path), "3", "none"]


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
    claim(directory, experiment)
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
    process.poll()  # closes its standard input
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
    result = result_of(tiny_experiment(folder, max_steps=3), tmp_path)
    assert result.steps == 3
