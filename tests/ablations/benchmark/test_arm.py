"""The processes that are compared: where they run, how they fail, and that none is left."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from ablations.benchmark.arm import Arm, Place, carry_out, places
from transformer.errors import InputError

pytestmark = pytest.mark.skipif(
    not hasattr(os, "sched_setaffinity"), reason="needs a process held to a core"
)
CORE = max(os.sched_getaffinity(0))

Start = Callable[[str], Callable[[], Arm]]


@pytest.fixture
def start(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Start:
    """Makes an arm that runs a script; the output of the first goes to ``script_0.txt``."""
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))

    def of_script(script: str) -> Callable[[], Arm]:
        name = f"script_{len(list(tmp_path.iterdir()))}"
        (tmp_path / f"{name}.py").write_text(f"import os, sys, time\n{script}\n")
        log = tmp_path / f"{name}.txt"
        return lambda: Arm("the arm", name, ["7"], Place(CORE, 3), {"GIVEN": "5"}, log)

    return of_script


def test_an_arm_has_its_core_its_gpu_and_what_it_is_given(tmp_path: Path, start: Start) -> None:
    before = os.sched_getaffinity(0)
    names = "'CUDA_VISIBLE_DEVICES', 'GIVEN'"
    script = f"print(*os.sched_getaffinity(0), sys.argv[1], *map(os.environ.get, [{names}]))"
    carry_out([start(script)], lambda: None)
    assert (tmp_path / "script_0.txt").read_text() == f"{CORE} 7 3 5\n"
    assert os.sched_getaffinity(0) == before


def test_two_places_are_two_cores_where_there_are_two(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "")
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: {2, 5, 7})
    assert places() == (Place(2, None), Place(5, None))
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "4")
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: {3})
    assert places() == (Place(3, 4), Place(3, 4))


def test_where_no_process_is_held_to_a_core_nothing_is_measured(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.delattr(os, "sched_setaffinity")
    with pytest.raises(InputError, match="this benchmark needs Linux"):
        places()


def test_a_failure_ends_the_other_arm_and_is_told_by_its_last_line(start: Start) -> None:
    begin, started = start("time.sleep(100)"), list[Arm]()

    def other() -> Arm:
        started.append(begin())
        return started[0]

    failing = start("print('some')\nsys.exit('the reason\\n')")
    with pytest.raises(ChildProcessError, match="the arm ended with exit code 1: the reason"):
        carry_out([other, failing], lambda: None)
    with pytest.raises(ChildProcessError, match="exit code -15"):
        started[0].is_over()


@pytest.mark.slow
def test_a_signal_ends_the_benchmark_and_leaves_nothing(tmp_path: Path) -> None:
    environment = {**os.environ, "TMPDIR": str(tmp_path), "CUDA_VISIBLE_DEVICES": ""}
    storage = tmp_path / "study.sqlite3"
    command = [sys.executable, "-m", "ablations", "benchmark", "--storage", f"sqlite:///{storage}"]
    with subprocess.Popen(command, env=environment, stderr=subprocess.PIPE, text=True) as process:
        while not list(tmp_path.glob("overhead-*/fleet/base/*.attempt-1/progress.json")):
            assert process.poll() is None
            time.sleep(0.1)
        process.send_signal(signal.SIGINT)
        said = process.communicate()[1]
    assert process.returncode == 130
    assert said.endswith("stopped; nothing is kept\n")
    assert not list(tmp_path.glob("overhead-*"))
