"""A run's process: its place, start and log."""

from __future__ import annotations

import multiprocessing
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from multiprocessing.process import BaseProcess
from pathlib import Path
from typing import Protocol

from experiments.records import ownership
from experiments.records.experiment import Experiment, Log
from experiments.records.processes import own_name
from experiments.records.progress import GRACE_SECONDS, STOPPED_EXIT_CODE
from experiments.records.run import LOG_FILE
from transformer.files import open_plain

# By default torchrun kills its ranks half a minute after a signal.
_OF_TORCHRUN = {"TORCH_ELASTIC_SHUTDOWN_TIMEOUT": f"{GRACE_SECONDS:.0f}"}
# The first blocks signals; the others are what a run imports (wandb.sdk.launch at each start of
# W&B). None of them touches a GPU or starts a thread.
_PRELOADED = [
    "ablations.runs.fork_server",
    "ablations.runs.entry",
    "experiments.run",
    "lightning.pytorch.loggers.wandb",
    "wandb.sdk.launch",
]
_SERVER_KILLED = 255  # Python's exit code for a run whose server was killed
_FORKING = threading.Lock()  # attempts are threads, and starting one process polls all others


@dataclass(frozen=True, slots=True)
class Place:
    """A slot for one run at a time: its GPUs as CUDA_VISIBLE_DEVICES names them (none: the CPU),
    the run's number of processes, and the node and host if it is on a cluster.
    """

    number: int
    devices: tuple[int | str, ...] = ()
    ranks: int = 1
    node: str = ""
    host: str = ""


@dataclass(frozen=True, kw_only=True, slots=True)
class Job:
    """One attempt at the run of ``experiment`` in ``root / name``.

    ``accumulate`` and ``log`` are as for :func:`experiments.run.run`. A run that fails more than
    ``retries`` times is given up. The runs in ``shares`` have the same training, of which at least
    the last ``checkpoints`` checkpoints are kept: whole with ``keep_checkpoints``, else only their
    weights once the run is scored. The process works in ``folder`` with the environment variables
    ``environment``; ``driver`` names the driver's process.
    """

    root: Path
    name: str
    experiment: Experiment
    retries: int = 2
    accumulate: int = 1
    log: Log = "wandb"
    shares: tuple[str, ...] = ()
    checkpoints: int = 1
    keep_checkpoints: bool = False
    driver: str = field(default_factory=own_name)
    folder: Path = field(default_factory=Path.cwd)
    environment: dict[str, str] = field(default_factory=dict[str, str])


class RunProcess(Protocol):
    """A started process that leads the process group ``pid``; ``poll`` works as in ``Popen``."""

    @property
    def pid(self) -> int: ...
    def poll(self) -> int | None: ...


# A function that starts a run's process in its directory.
Start = Callable[[Path, Job, Place], RunProcess]


def forget_rank() -> None:
    """Remove environment variables that would mislead runs: Lightning would take each for a rank of
    the job that started the driver, and W&B would take all of them for one run of its sweep.
    """
    ownership.forget_rank()
    os.environ.pop("WANDB_SWEEP_ID", None)


def environment(job: Job, place: Place) -> dict[str, str]:
    """The environment variables of a run's process, which include its GPUs."""
    gpus = {"CUDA_VISIBLE_DEVICES": ",".join(map(str, place.devices))} if place.devices else {}
    return {**os.environ, **job.environment, **gpus}


def start(directory: Path, job: Job, place: Place) -> subprocess.Popen[bytes]:
    """Start the run in ``directory`` and append its output to ``log.txt`` there.

    The process leads its own group, so that Ctrl-C at the terminal reaches only the driver. Its
    standard input closes when its parent is gone; the ranks that ``torch.distributed.run`` starts
    share it.
    """
    launch = ["torch.distributed.run", "--standalone", "--nproc-per-node", str(place.ranks), "-m"]
    module = ["ablations.runs.entry", str(directory), *_settings(job)]
    with open_plain(directory / LOG_FILE, "ab") as output:
        return subprocess.Popen(
            [sys.executable, "-m", *(launch if place.ranks > 1 else []), *module],
            stdin=subprocess.PIPE,
            stdout=output,
            stderr=subprocess.STDOUT,
            cwd=job.folder if job.folder.is_dir() else None,
            env={**environment(job, place), **_OF_TORCHRUN},
            start_new_session=True,
        )


def _settings(job: Job) -> tuple[str, ...]:
    """The arguments of a run's process after its directory."""
    whole = "whole" if job.keep_checkpoints else "weights"
    return str(job.accumulate), job.log, str(job.checkpoints), whole


def fork(directory: Path, job: Job, place: Place) -> RunProcess:
    """As :func:`start`, but forked from Python's fork server, which has imported torch.

    The server is started with the first run. A run whose server is killed counts as killed: it ends
    by itself after a checkpoint.
    """
    if place.ranks > 1:
        return start(directory, job, place)
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(_PRELOADED)
    arguments = (str(directory.absolute()), *_settings(job))
    run = context.Process(target=_carry_out, args=(arguments, job.folder, environment(job, place)))
    try:
        with _FORKING:
            run.start()
    except (OSError, EOFError):  # the server was just killed, or TMPDIR is too long for its socket
        return start(directory, job, place)
    return _Fork(run)


@dataclass(frozen=True, slots=True)
class _Fork:
    """A run that the fork server started."""

    process: BaseProcess

    @property
    def pid(self) -> int:
        pid = self.process.pid
        assert pid is not None
        return pid

    def poll(self) -> int | None:
        """The exit code, or minus the signal that killed it; None while it runs."""
        with _FORKING:
            code = self.process.exitcode
        return -signal.SIGKILL if code == _SERVER_KILLED else code


def _carry_out(arguments: tuple[str, ...], folder: Path, variables: dict[str, str]) -> None:
    """Carry out a run in its forked process."""
    os.setsid()
    directory = Path(arguments[0])
    try:
        output = open_plain(directory / LOG_FILE, "ab")
    except FileNotFoundError:  # another attempt has taken the run over
        sys.exit(STOPPED_EXIT_CODE)
    for stream in (1, 2):
        os.dup2(output.fileno(), stream)
    if folder.is_dir():
        os.chdir(folder)
    os.environ.clear()
    os.environ.update(variables)
    driver = multiprocessing.parent_process()
    assert driver is not None
    from ablations.runs.entry import main  # imports torch, which the driver must not

    sys.exit(main(arguments, driver.sentinel))


def signal_group(pid: int, number: signal.Signals) -> None:
    """Signal the group that a process leads, or only the process if it has no group yet."""
    for send in (os.killpg, os.kill):
        with suppress(ProcessLookupError, PermissionError):
            send(pid, number)
            return
