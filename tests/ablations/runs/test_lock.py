"""One driver for a directory, or one for each shard."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from ablations.runs import identity
from ablations.runs.lock import WHOLE, Shard, drivers, lock_runs
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
    command = [sys.executable, "-c", _HOLD, str(tmp_path)]
    with subprocess.Popen(
        command,
        cwd=Path(__file__).parents[3],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
    ) as other:
        assert other.stdout is not None and other.stdout.readline() == b"held\n"
        host = re.escape(identity.host_of(identity.own_name()))
        message = rf"is being worked on by process {other.pid} on {host} since 20\d\d-"
        with pytest.raises(InputError, match=message), lock_runs(tmp_path, WHOLE):
            pass
        assert [identity.pid_of(name) for name, _ in drivers(tmp_path)] == [other.pid]
        other.kill()  # the lock goes with it
    with lock_runs(tmp_path, WHOLE):
        assert [identity.pid_of(name) for name, _ in drivers(tmp_path)] == [os.getpid()]


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
                assert len(drivers(tmp_path)) == 2
        else:
            with pytest.raises(InputError, match="is being worked on"), lock_runs(tmp_path, wanted):
                pass
    with lock_runs(tmp_path, wanted):  # whatever was refused has left no lock behind
        pass


def test_a_damaged_record_of_the_holder_is_no_crash(tmp_path: Path) -> None:
    with lock_runs(tmp_path, WHOLE):
        (tmp_path / ".driver.lock").write_text("7 null")
        assert drivers(tmp_path) == []
        with pytest.raises(InputError, match="by another process"), lock_runs(tmp_path, WHOLE):
            pass


@pytest.mark.parametrize("text", ["0/3", "4/3", "1", "a/b", "-1/3", "1/3/5", ""])
def test_a_shard_is_refused_in_one_line(text: str) -> None:
    with pytest.raises(InputError, match=r"--shard is .*, but must be like 2/8"):
        Shard.parse(text)
    assert Shard.parse("2/8") == Shard(2, 8)
