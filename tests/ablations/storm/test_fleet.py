"""What the storm stands on: processes are found by their worker, and none outlives the tests."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from pathlib import Path

import pytest

from tests.ablations.storm.fleet import ROOT, Worker, launch, marked

pytestmark = pytest.mark.skipif(
    not Path("/proc/self/environ").exists(), reason="a fleet's processes are found in /proc"
)

SLEEPER = [sys.executable, "-S", "-c", "import time; time.sleep(60)"]
PARENT = f"import subprocess; subprocess.Popen({SLEEPER!r}, start_new_session=True).wait()"
KILLED = f"""
import os, pathlib, signal, sys
from tests.ablations.storm.fleet import Worker, keeper, launch

with keeper():
    worker = Worker(launch, {SLEEPER!r}, os.environ, pathlib.Path(sys.argv[1]))
    print(worker.mark, flush=True)
    worker.send(signal.SIGSTOP)
    os.kill(os.getpid(), signal.SIGKILL)
"""


def test_a_worker_is_ended_with_all_that_came_of_it(tmp_path: Path) -> None:
    worker = Worker(launch, [sys.executable, "-S", "-c", PARENT], os.environ, tmp_path)
    while len(marked(worker.mark)) < 2:
        assert worker.lives
    worker.end()
    assert marked(worker.mark) == []


def test_none_outlives_tests_that_were_killed(tmp_path: Path) -> None:
    command = [sys.executable, "-c", KILLED, str(tmp_path)]
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    said = subprocess.run(command, env=environment, stdout=subprocess.PIPE, text=True, check=False)
    deadline = time.monotonic() + 30
    while marked(said.stdout.strip()):
        assert time.monotonic() < deadline
        time.sleep(0.05)
