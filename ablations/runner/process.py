"""A run in a process of its own, so that a crash of a trial ends with it.

``python -m ablations.runner.process DIRECTORY`` carries out the run that ``config.json`` describes.
"""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Any, Protocol

from ablations.runner.warm import ForkedProcess

LOG_FILE = "log.txt"
# What a trial's process ends with after a signal and a checkpoint (sysexits: EX_TEMPFAIL).
STOPPED = 75
# By these Lightning would take a trial for one of the ranks of what started it.
_LAUNCHERS = (
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


class RunProcess(Protocol):
    """What is to be known of a process that was started: a part of ``subprocess.Popen``."""

    @property
    def pid(self) -> int:
        """Its number, and that of its process group."""
        ...

    @property
    def returncode(self) -> int | None:
        """As :meth:`poll` gave it last."""
        ...

    def poll(self) -> int | None:
        """The exit code, or minus the number of the signal that killed it; None while it runs."""
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
) -> RunProcess:
    """Start the run of ``directory``, its output appended to ``log.txt`` there.

    The process leads a group of its own, so that a Ctrl-C at the terminal reaches the parent
    only; it stops by itself, after a checkpoint, when the parent is gone. How it ended is told by
    :func:`ablations.runner.endings.ending`. One rank is forked from a process that has imported torch
    (:mod:`ablations.runner.warm`); several are those of a ``torch.distributed.run``.

    Args:
        devices: the GPUs that the process may see, by number or UUID; none leaves all
        ranks: processes of the run: as many as GPUs, or any number on the CPU
        accumulate: as :func:`experiments.run.run.run` takes it
    """
    environment = {k: v for k, v in os.environ.items() if k not in _LAUNCHERS}
    if devices:
        environment["CUDA_VISIBLE_DEVICES"] = ",".join(map(str, devices))
    if ranks == 1:
        paths = str(directory.absolute()), str(Path.cwd())
        return ForkedProcess(_run_forked, *paths, environment, accumulate)
    launch = ["torch.distributed.run", "--standalone", "--nproc-per-node", str(ranks)]
    module = ["-m", "ablations.runner.process", str(directory), str(accumulate)]
    with (directory / LOG_FILE).open("ab") as log:
        return _Launcher(
            [sys.executable, "-m", *launch, *module],
            stdin=subprocess.PIPE,  # its end tells the ranks that the parent is gone
            stdout=log,
            stderr=subprocess.STDOUT,
            env=environment,
            start_new_session=True,
        )


class _Launcher(subprocess.Popen[bytes]):
    """Lets go of the standard input that it holds once the process is over."""

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


def _run_forked(*arguments: Any) -> None:
    from ablations.runner.own_process import run_forked  # which the parent need not import

    run_forked(*arguments)


if __name__ == "__main__":
    from ablations.runner.own_process import run_as_rank

    sys.exit(run_as_rank(Path(sys.argv[1]), *map(int, sys.argv[2:])))
