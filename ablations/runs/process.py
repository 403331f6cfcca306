"""A run's process: its surroundings, its start, its log."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections import deque
from contextlib import suppress
from pathlib import Path

from ablations.runs.executor import Job, Place
from experiments.records.progress import printable

LOG_FILE = "log.txt"
_LOG_BYTES = 65_536  # in which its last lines are looked for
# With these, Lightning would take a run for one of the ranks of the job that started the driver.
_OF_LAUNCHERS = ("MASTER_", "SLURM_NTASKS", "TORCHELASTIC_")
_OF_RANKS = ("RANK", "WORLD_SIZE", "LOCALID", "NODEID", "PROCID")


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


def environment() -> dict[str, str]:
    """This process's variables without those by which a launcher tells it what rank it is."""
    return {
        name: value
        for name, value in os.environ.items()
        if not name.startswith(_OF_LAUNCHERS) and not name.endswith(_OF_RANKS)
    }


def start(directory: Path, job: Job, place: Place) -> subprocess.Popen[bytes]:
    """Start the run of ``directory`` and append its output to ``log.txt`` there.

    The process leads a group of its own, so that Ctrl-C at the terminal reaches the driver only.
    If its parent disappears, it stops by itself after a checkpoint. Several ranks are started by
    ``torch.distributed.run``.
    """
    launch = ["torch.distributed.run", "--standalone", "--nproc-per-node", str(place.ranks), "-m"]
    module = ["ablations.runs.entry", str(directory), str(job.accumulate), job.log]
    with (directory / LOG_FILE).open("ab") as output:
        return _Process(
            [sys.executable, "-m", *(launch if place.ranks > 1 else []), *module],
            stdin=subprocess.PIPE,  # closes when its parent is gone, which the ranks watch
            stdout=output,
            stderr=subprocess.STDOUT,
            cwd=job.folder if job.folder.is_dir() else None,
            env=environment() | job.environment | place.environment,
            start_new_session=True,
        )


class _Process(subprocess.Popen[bytes]):
    """Closes the pipe to the process's standard input when the process has ended."""

    def poll(self) -> int | None:
        code = super().poll()
        if code is not None and self.stdin is not None:
            self.stdin.close()
        return code


def signal_group(pid: int, number: signal.Signals) -> None:
    """Signal a process group that may be gone."""
    with suppress(ProcessLookupError, PermissionError):
        os.killpg(pid, number)
