"""A run's process: its place, start and log."""

from __future__ import annotations

import multiprocessing
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Generator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from multiprocessing import resource_tracker
from multiprocessing.context import ForkServerProcess
from pathlib import Path
from typing import NoReturn, Protocol

from experiments.records import ownership
from experiments.records.experiment import Experiment, Log
from experiments.records.processes import own_name
from experiments.records.progress import STOP_SIGNALS, STOPPED_EXIT_CODE
from experiments.records.run import LOG_FILE
from transformer.files import open_plain

# A checkpoint waits for a validation, which may take half a minute. A run that has not written its
# checkpoint by then resumes from the one before.
GRACE_SECONDS = 60.0
# By default it kills its ranks half a minute after a signal.
_OF_TORCHRUN = {"TORCH_ELASTIC_SHUTDOWN_TIMEOUT": f"{GRACE_SECONDS:.0f}"}
# What a run imports; each start of W&B looks at its launch tools. None of these modules touches a
# GPU or starts a thread.
_PRELOADED = [
    "ablations.runs.entry",
    "experiments.run",
    "lightning.pytorch.loggers.wandb",
    "wandb.sdk.launch",
]
_START_ATTEMPTS, _MOMENT_SECONDS = 20, 0.1
_LOST = 255  # Python's exit code of a process whose fork server was killed
_FORKING = threading.Lock()  # for attempts' threads: starting a process polls all the others


@dataclass(frozen=True, slots=True)
class Place:
    """Room for one run at a time: its GPUs as CUDA_VISIBLE_DEVICES names them (none: the CPU), its
    number of processes, and the node and host of a cluster.
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
    ``retries`` times is given up. One that diverged has failed; a trial of a search
    (``may_diverge``) has ended. The process works in ``folder`` with the variables ``environment``,
    and is one of the ``driver`` of that name.
    """

    root: Path
    name: str
    experiment: Experiment
    retries: int = 2
    accumulate: int = 1
    log: Log = "wandb"
    may_diverge: bool = False
    driver: str = field(default_factory=own_name)
    folder: Path = field(default_factory=Path.cwd)
    environment: dict[str, str] = field(default_factory=dict[str, str])


class RunProcess(Protocol):
    """A started process, which leads the process group ``pid``; ``poll`` is as of a ``Popen``."""

    @property
    def pid(self) -> int: ...
    def poll(self) -> int | None: ...


# Starts a run's process in its directory.
Start = Callable[[Path, Job, Place], RunProcess]


def forget_rank() -> None:
    """Remove the variables that runs inherit, with which Lightning would take a run for a rank of
    the job that started the driver, and W&B all runs for the one of its sweep.
    """
    ownership.forget_rank()
    os.environ.pop("WANDB_SWEEP_ID", None)


def environment(job: Job, place: Place) -> dict[str, str]:
    """The environment of a run's process, with its GPUs."""
    gpus = {"CUDA_VISIBLE_DEVICES": ",".join(map(str, place.devices))} if place.devices else {}
    return {**os.environ, **job.environment, **gpus}


def start(directory: Path, job: Job, place: Place) -> subprocess.Popen[bytes]:
    """Start the run of ``directory`` and append its output to ``log.txt`` there.

    The process leads its own group, so that Ctrl-C at the terminal reaches the driver only. Its
    input closes if its parent is gone; ranks, which ``torch.distributed.run`` starts, share it.
    """
    launch = ["torch.distributed.run", "--standalone", "--nproc-per-node", str(place.ranks), "-m"]
    module = ["ablations.runs.entry", str(directory), str(job.accumulate), job.log]
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


def fork(directory: Path, job: Job, place: Place) -> RunProcess:
    """As :func:`start`, but in a fork of Python's fork server, which has imported torch.

    If the server is killed, its runs count as killed, and the next run starts another server.
    """
    if place.ranks > 1:
        return start(directory, job, place)
    run = _ForkedRun(directory.absolute(), job, place)
    multiprocessing.set_forkserver_preload(_PRELOADED)
    for _ in range(_START_ATTEMPTS):
        # An error means that the server has just been killed.
        with _FORKING, _blocked_signals(), suppress(OSError, EOFError):
            run.start()
            return run
        time.sleep(_MOMENT_SECONDS)
    return start(directory, job, place)  # no server can be had, as where TMPDIR is a long name


@contextmanager
def _blocked_signals() -> Generator[None]:
    """Block signals: a fork server that is started meanwhile ignores those to the whole group."""
    resource_tracker.ensure_running()  # it would unblock them
    before = signal.pthread_sigmask(signal.SIG_BLOCK, STOP_SIGNALS)
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


class _ForkedRun(ForkServerProcess):
    """A run whose input is a pipe that closes if the driver is gone."""

    def __init__(self, directory: Path, job: Job, place: Place) -> None:
        super().__init__()
        self._log = directory / LOG_FILE
        self._arguments = (str(directory), str(job.accumulate), job.log)
        self._environment = environment(job, place)

    @property
    def pid(self) -> int:
        number = super().pid
        assert number is not None
        return number

    def poll(self) -> int | None:
        """The exit code, or minus the signal that killed it; None while it runs."""
        with _FORKING:
            code = self.exitcode
        if code != _LOST:
            return code
        signal_group(self.pid, signal.SIGKILL)  # it may be alive
        return -signal.SIGKILL

    def run(self) -> NoReturn:
        """Carry the run out, in the forked process."""
        os.setsid()
        try:
            log = open_plain(self._log, "ab")
        except FileNotFoundError:  # another attempt has taken the run over
            os._exit(STOPPED_EXIT_CODE)
        driver = multiprocessing.parent_process()
        assert driver is not None
        for number, stream in enumerate((driver.sentinel, log.fileno(), log.fileno())):
            os.dup2(stream, number)
        os.environ.clear()
        os.environ.update(self._environment)
        from ablations.runs.entry import main  # imports torch, which the driver must not

        code = main(self._arguments)
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(code)  # without the server's exit handlers


def signal_group(pid: int, number: signal.Signals) -> None:
    """Signal the group that a process leads, or the process if it has no group yet."""
    for send in (os.killpg, os.kill):
        with suppress(ProcessLookupError, PermissionError):
            send(pid, number)
            return
