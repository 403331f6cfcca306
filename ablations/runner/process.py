"""A run's process: how it is started, and how one that outlived its worker is ended.

``python -m ablations.runner.process DIRECTORY [ACCUMULATE LOG]`` carries out the run that
``config.json`` describes.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections import deque
from contextlib import suppress
from pathlib import Path
from typing import Any, Protocol, cast

from ablations.runner import identity
from ablations.runner.forkserver import ForkedProcess
from experiments.run.experiment import Log
from experiments.run.progress import printable

LOG_FILE = "log.txt"
_LOG_BYTES = 65_536  # in which its last lines are looked for
PROCESS_FILE = ".process"
_ORPHAN_SECONDS = 20.0
# With these, Lightning would take a run for one of the ranks of the job that started the worker.
_LAUNCHER_VARIABLES = (
    "GROUP_RANK",
    "JSM_NAMESPACE_RANK",
    "LOCAL_RANK",
    "LOCAL_WORLD_SIZE",
    "MASTER_ADDR",
    "MASTER_PORT",
    "NODE_RANK",
    "RANK",
    "SLURM_LOCALID",
    "SLURM_NODEID",
    "SLURM_NTASKS",
    "SLURM_NTASKS_PER_NODE",
    "SLURM_PROCID",
    "TORCHELASTIC_RUN_ID",
    "WORLD_SIZE",
)


def last_log_lines(directory: Path, count: int, *, start: int = 0) -> list[str]:
    """The last non-empty lines of a run's log, from the byte ``start``; empty without a log."""
    try:
        with (directory / LOG_FILE).open("rb") as log:
            size = log.seek(0, os.SEEK_END)
            log.seek(max(start, size - _LOG_BYTES))
            text = (printable(line.decode(errors="replace").rstrip()) for line in log)
            return list(deque(filter(None, text), maxlen=count))
    except OSError:
        return []


class RunProcess(Protocol):
    """The part of ``subprocess.Popen`` that every started process provides."""

    @property
    def pid(self) -> int:
        """Its number, and that of its process group."""
        ...

    @property
    def returncode(self) -> int | None:
        """As :meth:`poll` returned it last."""
        ...

    def poll(self) -> int | None:
        """The exit code, or minus the signal that killed the process; None while it runs."""
        ...

    def wait(self, timeout: float | None = None) -> int:
        """Wait for the end, at most ``timeout`` seconds (``subprocess.TimeoutExpired``)."""
        ...


def start(
    directory: Path,
    *,
    devices: tuple[int | str, ...] = (),
    ranks: int = 1,
    accumulate: int = 1,
    log: Log = "wandb",
) -> RunProcess:
    """Start the run of ``directory`` and append its output to ``log.txt`` there.

    The process leads a group of its own, so that Ctrl-C at the terminal reaches the worker only.
    If the worker disappears, it stops by itself after a checkpoint. One rank is forked from a
    process that has imported torch; several are started by ``torch.distributed.run``.

    Args:
        devices: the GPUs that the process may see, by number or UUID; empty for all
        ranks: processes of the run: as many as GPUs, or any number on the CPU
        accumulate: as for :func:`experiments.run.run.run`
        log: likewise
    """
    environment = {k: v for k, v in os.environ.items() if k not in _LAUNCHER_VARIABLES}
    if devices:
        environment["CUDA_VISIBLE_DEVICES"] = ",".join(map(str, devices))
    if ranks == 1:
        paths = str(directory.absolute()), str(Path.cwd())
        return ForkedProcess(_run_forked, *paths, environment, accumulate, log)
    launch = ["torch.distributed.run", "--standalone", "--nproc-per-node", str(ranks)]
    module = ["-m", "ablations.runner.process", str(directory), str(accumulate), log]
    with (directory / LOG_FILE).open("ab") as output:
        return _Launcher(
            [sys.executable, "-m", *launch, *module],
            stdin=subprocess.PIPE,  # closes when the worker is gone, which the ranks watch
            stdout=output,
            stderr=subprocess.STDOUT,
            env=environment,
            start_new_session=True,
        )


class _Launcher(subprocess.Popen[bytes]):
    """Closes the pipe to the process's standard input when the process has ended."""

    def poll(self) -> int | None:
        code = super().poll()
        if code is not None and self.stdin is not None:
            self.stdin.close()
        return code

    def wait(self, timeout: float | None = None) -> int:
        super().wait(timeout)
        code = self.poll()
        assert code is not None
        return code


class Orphan:
    """A process that an earlier attempt may have left running on this machine.

    It is asked to end after a checkpoint, so that nothing is lost, and killed if it does not. One
    on another machine cannot be reached; renaming its directory keeps it from writing anything.
    """

    def __init__(self, directory: Path | None) -> None:
        """Ask the process of the attempt in ``directory`` to end, if it is alive."""
        self._name = ""
        self._deadline = time.monotonic() + _ORPHAN_SECONDS
        with suppress(OSError):
            if directory is not None:
                self._name = (directory / PROCESS_FILE).read_text("utf-8", "replace").strip()
        self.existed = self._is_alive()
        if self.existed:
            self._signal(signal.SIGTERM)
            self._signal(signal.SIGCONT)  # a paused process would not receive it

    def is_gone(self) -> bool:
        """Whether the next attempt may start; kills the process when its time is up."""
        if not self._is_alive():
            return True
        if time.monotonic() > self._deadline:
            self._signal(signal.SIGKILL)
        return False

    def _is_alive(self) -> bool:
        return identity.is_local(self._name) and not identity.is_gone(self._name)

    def _signal(self, number: signal.Signals) -> None:
        signal_group(identity.pid_of(self._name), number)


def signal_group(pid: int, number: signal.Signals) -> None:
    """Signal a process group that may be gone."""
    with suppress(ProcessLookupError, PermissionError):
        os.killpg(pid, number)


def _run_forked(*arguments: Any) -> None:
    from ablations.runner.entrypoint import run_forked  # imports torch, which the worker must not

    run_forked(*arguments)


if __name__ == "__main__":
    from ablations.runner.entrypoint import run_as_rank

    folder, *given = sys.argv[1:]
    parts, log = given or ("1", "wandb")
    sys.exit(run_as_rank(Path(folder), int(parts), cast(Log, log)))
