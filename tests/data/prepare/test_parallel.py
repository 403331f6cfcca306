"""``map`` on several processes, and on a thread."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest

from transformer.data.prepare.parallel import in_subprocess, map_in_order, prefetch

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


def test_a_killed_process_is_reported() -> None:
    with pytest.raises(ChildProcessError, match="was killed, perhaps for lack of memory: start"):
        in_subprocess(kill_itself, 0)


SCRIPT = r"""
import os, time
from transformer.data.prepare.parallel import map_in_order

def report(item):
    os.write(1, f"{os.getpid()}\n".encode())
    time.sleep(0.05)

for _ in map_in_order(report, range(10_000), 2):
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


def test_a_bounded_number_of_items_is_prefetched_in_order() -> None:
    assert list(prefetch(lambda x: x * x, range(23))) == [x * x for x in range(23)]
    assert list(prefetch(abs, [])) == []
    third = threading.Event()
    made: list[int] = []

    def make(item: int) -> int:
        made.append(item)
        if item == 3:
            third.set()
        return item

    before = threading.active_count()
    items = prefetch(make, range(101), ahead=3)
    assert next(items) == 0
    assert third.wait(5)
    items.close()
    assert max(made) <= 4
    assert threading.active_count() == before, "the thread has ended"


def test_an_exception_is_raised_when_its_item_is_due() -> None:
    items = prefetch(lambda x: 7 // (2 - x), range(5))
    assert [next(items), next(items)] == [3, 7]
    with pytest.raises(ZeroDivisionError):
        next(items)
