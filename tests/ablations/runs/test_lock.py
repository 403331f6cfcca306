"""Which process has what: names of processes, one driver for a directory or for each shard."""

from __future__ import annotations

import os
import re
import socket
import subprocess
import sys
from pathlib import Path

import pytest

from ablations.runs.lock import WHOLE, Shard, is_running, lock_runs, name_of, own_name
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
    with lock_runs(tmp_path, held):
        if is_free:
            with lock_runs(tmp_path, wanted):
                pass
        else:
            with pytest.raises(InputError, match="is being worked on"), lock_runs(tmp_path, wanted):
                pass
    with lock_runs(tmp_path, wanted):  # whatever was refused has left no lock behind
        pass


@pytest.mark.parametrize("text", ["0/3", "4/3", "1", "a/b", "-1/3", "1/3/5", ""])
def test_a_shard_is_refused_in_one_line(text: str) -> None:
    with pytest.raises(InputError, match=r"--shard is .*, but must be like 2/8"):
        Shard.parse(text)
    assert Shard.parse("2/8") == Shard(2, 8)


def test_another_process_with_the_same_number_is_not_taken_for_it() -> None:
    host, pid, start, machine = own_name().rsplit(":", 3)
    assert own_name() == name_of(os.getpid()) and is_running(own_name())
    assert is_running(f"{host}:{pid}:{int(start) - 1}:{machine}") is False
    elsewhere = own_name()[:-1] + "z"
    assert [is_running(x) for x in (elsewhere, "", "nonsense")] == [None] * 3
