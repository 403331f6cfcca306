"""A run's process: start it, end one that outlived its driver, read the end of its log."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections import deque
from contextlib import suppress
from pathlib import Path

from ablations.runs import identity
from ablations.runs.executor import Job, Place
from experiments.records.progress import printable

LOG_FILE = "log.txt"
_LOG_BYTES = 65_536  # in which its last lines are looked for
PROCESS_FILE = ".process"
_ORPHAN_SECONDS = 20.0
# With these, Lightning would take a run for one of the ranks of the job that started the driver.
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


def environment(job: Job, place: Place) -> dict[str, str]:
    """The variables of a run's process."""
    found = {k: v for k, v in os.environ.items() if k not in _LAUNCHER_VARIABLES}
    found |= job.environment
    if place.devices:
        found["CUDA_VISIBLE_DEVICES"] = ",".join(map(str, place.devices))
    return found


def start(directory: Path, job: Job, place: Place) -> subprocess.Popen[bytes]:
    """Start the run of ``directory`` and append its output to ``log.txt`` there.

    The process leads a session of its own, so that Ctrl-C at the terminal reaches the driver only.
    If its parent disappears, it stops by itself after a checkpoint. Several ranks are started by
    ``torch.distributed.run``.
    """
    launch = ["torch.distributed.run", "--standalone", "--nproc-per-node", str(place.ranks), "-m"]
    module = ["ablations.runs.entry", str(directory), str(job.accumulate), job.log]
    command = [sys.executable, "-m", *(launch if place.ranks > 1 else []), *module]
    with (directory / LOG_FILE).open("ab") as output:
        return _Process(
            command,
            stdin=subprocess.PIPE,  # closes when its parent is gone, which the ranks watch
            stdout=output,
            stderr=subprocess.STDOUT,
            cwd=job.folder if job.folder.is_dir() else None,
            env=environment(job, place),
            start_new_session=True,
        )


class _Process(subprocess.Popen[bytes]):
    """Closes the pipe to the process's standard input when the process has ended."""

    def poll(self) -> int | None:
        code = super().poll()
        if code is not None and self.stdin is not None:
            self.stdin.close()
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
