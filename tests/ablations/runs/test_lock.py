"""Which process has what: its name, a directory or a shard of it, and a place on its machine."""

from __future__ import annotations

import errno
import os
import re
import socket
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import pytest

from ablations.runs.lock import WHOLE, Shard, lock_runs
from ablations.runs.options import Places, count_cores, gpus
from experiments.records.processes import is_running, name_of, own_name, pid_of
from transformer.errors import InputError

_HOLD = """
import sys
from pathlib import Path
from ablations.runs.lock import WHOLE, lock_runs

with lock_runs(Path(sys.argv[1]), WHOLE):
    print("held", flush=True)
    sys.stdin.read()
"""


def test_a_second_driver_is_refused_and_told_who_holds_the_directory(tmp_path: Path) -> None:
    with subprocess.Popen(
        [sys.executable, "-c", _HOLD, str(tmp_path)],
        cwd=Path(__file__).parents[3],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
    ) as other:
        assert other.stdout is not None and other.stdout.readline() == b"held\n"
        host = re.escape(socket.gethostname())
        message = rf"is being worked on by process {other.pid} on {host} since 20\d\d-"
        with pytest.raises(InputError, match=message), lock_runs(tmp_path, WHOLE):
            pass
        name = name_of(other.pid)
        assert is_running(name)
        other.kill()  # the lock goes with it
        os.waitid(os.P_PID, other.pid, os.WEXITED | os.WNOWAIT)
        assert is_running(name) is False  # even as a zombie
    assert is_running(name) is False
    with lock_runs(tmp_path, WHOLE):
        pass


@pytest.mark.parametrize(
    ("held", "wanted", "is_free"),
    [
        (Shard(1, 3), Shard(2, 3), True),
        (Shard(2, 3), Shard(2, 3), False),
        (Shard(1, 3), Shard(1, 2), False),
        (Shard(1, 3), Shard(1, 13), False),
        (Shard(1, 3), WHOLE, False),
        (WHOLE, Shard(1, 3), False),
    ],
)
def test_shards_exclude_those_that_share_runs(
    tmp_path: Path, held: Shard, wanted: Shard, is_free: bool
) -> None:
    expected = nullcontext() if is_free else pytest.raises(InputError, match="is being worked on")
    with lock_runs(tmp_path, held), expected, lock_runs(tmp_path, wanted):
        pass
    with lock_runs(tmp_path, wanted):  # whatever was refused has left no lock behind
        pass


@pytest.mark.slow
def test_shards_that_start_together_do_not_refuse_each_other(tmp_path: Path) -> None:
    with lock_runs(tmp_path, WHOLE):
        pass  # its file stays, and each shard looks at it

    def start_often(number: int) -> None:
        for _ in range(200):
            with lock_runs(tmp_path, Shard(number, 4)):
                pass

    with ThreadPoolExecutor(4) as tasks:
        list(tasks.map(start_often, range(1, 5)))


def test_a_disk_without_locks_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object) -> None:
        raise OSError(errno.ENOSYS, os.strerror(errno.ENOSYS))

    monkeypatch.setattr("fcntl.flock", refuse)
    message = r"driver.lock cannot be locked \(Function not implemented\)"
    with pytest.raises(InputError, match=message), lock_runs(tmp_path, WHOLE):
        pass


def test_another_process_with_the_same_number_is_not_taken_for_it() -> None:
    host, pid, start, machine = own_name().rsplit(":", 3)
    assert own_name() == name_of(os.getpid()) and is_running(own_name())
    assert is_running(f"{host}:{pid}:{int(start) - 1}:{machine}") is False
    elsewhere = own_name()[:-1] + "z"
    assert [is_running(x) for x in (elsewhere, "", "nonsense")] == [None] * 3
    for number in ("0", "-1", "-4", "٣", "9" * 30, "1 ", "1.0", ""):  # 0 would be our own group
        name = f"{host}:{number}:0:{machine}"
        assert pid_of(name) is is_running(name) is None


def test_no_more_runs_at_a_time_than_a_machine_may_have(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "5")
    assert len(Places(trials_per_device=19).here(1)) == 19
    assert len(Places(workers=64).here(1)) == 64
    for places in (Places(workers=65), Places(workers=10**12), Places(trials_per_device=65)):
        with pytest.raises(InputError, match=r"but may be at most 64"):
            places.here(1)


def test_without_proc_a_process_that_has_ended_is_known_by_its_number(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("experiments.records.processes._look", lambda pid: ("", "0"))  # as on macOS
    with subprocess.Popen([sys.executable, "-S", "-c", "input()"], stdin=subprocess.PIPE) as other:
        name = name_of(other.pid)
        assert is_running(name)
    assert is_running(name) is False


TWO, THREE, CORE = ((2,), 1), ((3,), 1), ((), 1)


@pytest.mark.parametrize(
    ("visible", "settings", "threads", "expected"),
    [
        ("2,3", {}, 1, [TWO, THREE]),
        ("2,3", {"workers": 3}, 1, [TWO, THREE, TWO]),
        ("2,3", {"trials_per_device": 2}, 1, [TWO, THREE] * 2),
        ("2,3", {"devices_per_trial": 2}, 1, [((2, 3), 2)]),
        ("2,3", {"devices_per_trial": 2, "trials_per_device": 2}, 1, [((2, 3), 2)] * 2),
        ("0,1,2,3,4", {"devices_per_trial": 2}, 1, [((0, 1), 2), ((2, 3), 2)]),
        ("GPU-8932f937-d72c", {}, 1, [(("GPU-8932f937-d72c",), 1)]),
        ("MIG-1a, MIG-2b", {}, 1, [(("MIG-1a",), 1), (("MIG-2b",), 1)]),
        ("1,-1,2", {}, 1, [((1,), 1)]),
        ("NoDevFiles", {}, None, [CORE] * 9),
        ("", {}, None, [CORE] * 9),
        ("", {}, 3, [CORE] * 3),
        ("", {}, 10, [CORE]),
        ("", {"workers": 4}, 1, [CORE] * 4),
        ("", {"devices_per_trial": 3}, 1, [((), 3)] * 3),
        ("", {"trials_per_device": 2}, 1, [CORE] * 18),
        ("", {"devices_per_trial": 10}, 1, "cores here: 9, and no GPU"),
        ("1,3", {"devices_per_trial": 10}, 1, "GPUs here: 2"),
    ],
)
def test_gpus_or_cores_are_shared_out(
    visible: str,
    settings: dict[str, int],
    threads: int | None,
    expected: Any,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("ablations.runs.options.count_cores", lambda: 9)
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", visible)
    if isinstance(expected, str):
        with pytest.raises(InputError, match=f"--devices-per-trial is 10, but {expected}"):
            Places(**settings).here(threads)
        return
    found = Places(**settings).here(threads)
    assert [(place.devices, place.ranks) for place in found] == expected
    assert [place.number for place in found] == list(range(len(found)))


def test_gpus_that_do_not_answer_are_not_taken_for_none(monkeypatch: pytest.MonkeyPatch) -> None:
    def hang(*_: object, **settings: float) -> None:
        raise subprocess.TimeoutExpired("nvidia-smi", settings["timeout"])

    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    monkeypatch.setattr(subprocess, "run", hang)
    with pytest.raises(InputError, match="name this machine's GPUs in CUDA_VISIBLE_DEVICES"):
        gpus()


@pytest.mark.parametrize(
    ("quota", "cores"),
    [("250000 100000\n", 2), ("50000 100000\n", 1), ("6400000 100000\n", 9), ("max 100000\n", 9)],
)
def test_a_containers_quota_counts_as_cores(
    quota: str, cores: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: range(9), raising=False)
    monkeypatch.setattr("ablations.runs.options._QUOTA", tmp_path / "cpu.max")
    assert count_cores() == 9
    (tmp_path / "cpu.max").write_text(quota)
    assert count_cores() == cores
