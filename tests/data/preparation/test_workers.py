"""``map`` on several processes."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from transformer.data.prepare.parallel import in_subprocess, map_in_order, useful_workers

ROOT = Path(__file__).parents[3]


def slow_when_even(item: int) -> tuple[int, int]:
    time.sleep(0.02 * (item % 2 == 0))
    return item, os.getpid()


def kill_itself(item: int) -> None:
    os.kill(os.getpid(), signal.SIGKILL)


def test_results_come_in_the_order_of_the_items_from_several_processes() -> None:
    results = list(map_in_order(slow_when_even, range(19), 2))
    assert [item for item, _ in results] == list(range(19))
    processes = {process for _, process in results}
    assert os.getpid() not in processes


def test_one_worker_is_this_process() -> None:
    assert [p for _, p in map_in_order(slow_when_even, range(3), 1)] == [os.getpid()] * 3


def test_the_queue_of_items_is_short() -> None:
    taken: list[int] = []
    results = map_in_order(slow_when_even, (taken.append(i) or i for i in range(1_009)), 2)
    next(results)
    results.close()
    assert len(taken) < 11


def test_a_killed_process_is_reported() -> None:
    with pytest.raises(ChildProcessError, match="was killed, perhaps for lack of memory: start"):
        in_subprocess(kill_itself, 0)


def test_few_chunks_start_no_process() -> None:
    assert [useful_workers(16, chunks) for chunks in (0, 1, 7, 8, 64, 1_000)] == [
        1,
        1,
        1,
        2,
        16,
        16,
    ]
    assert useful_workers(1, 1_000) == 1


SCRIPT = r"""
import os, time
from transformer.data.prepare.parallel import map_in_order

def told(item):
    os.write(1, f"{os.getpid()}\n".encode())
    time.sleep(0.05)

for _ in map_in_order(told, range(10_000), 2):
    pass
"""


def test_a_script_needs_no_guard_and_a_kill_leaves_no_process(tmp_path: Path) -> None:
    script = tmp_path / "script.py"
    script.write_text(SCRIPT)
    process = subprocess.Popen(
        [sys.executable, str(script)],
        env=os.environ | {"PYTHONPATH": str(ROOT)},
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
    )
    with process:
        assert process.stdout is not None
        workers = {int(process.stdout.readline()) for _ in range(4)}
        assert process.pid not in workers
        process.kill()
        process.stdout.read()  # ends only when no worker holds the other end
