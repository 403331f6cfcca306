"""NVIDIA's MPS, by which processes share a GPU."""

from __future__ import annotations

import os
import shutil
import subprocess
import tempfile
from collections.abc import Generator
from contextlib import contextmanager

CONTROL = "nvidia-cuda-mps-control"
_SECONDS = 30.0


def is_there() -> bool:
    """Whether this machine has it."""
    return shutil.which(CONTROL) is not None


@contextmanager
def mps() -> Generator[dict[str, str]]:
    """The environment for processes that share a GPU through an MPS daemon of their own, which is
    stopped at the end; without MPS, this process's own environment.
    """
    if not is_there():
        yield dict(os.environ)
        return
    with tempfile.TemporaryDirectory(prefix="mps-") as folder:
        folders = {"CUDA_MPS_PIPE_DIRECTORY": folder, "CUDA_MPS_LOG_DIRECTORY": folder}
        environment = {**os.environ, **folders}
        start = [CONTROL, "-d"]
        nothing = subprocess.DEVNULL
        subprocess.run(start, env=environment, stdin=nothing, check=True, timeout=_SECONDS)
        try:
            yield environment
        finally:
            end = [CONTROL]
            subprocess.run(end, input=b"quit\n", env=environment, check=False, timeout=_SECONDS)
