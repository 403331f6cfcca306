"""Names of processes: who lives, who is gone, who cannot be known of."""

from __future__ import annotations

import os
import subprocess
import sys

from ablations.runs.identity import host_of, is_running, name_of, own_name, pid_of


def test_a_process_is_known_to_be_gone_once_it_ends() -> None:
    process = subprocess.Popen([sys.executable, "-S", "-c", "input()"], stdin=subprocess.PIPE)
    name = name_of(process.pid)
    assert (pid_of(name), is_running(name)) == (process.pid, True)
    process.kill()
    os.waitid(os.P_PID, process.pid, os.WEXITED | os.WNOWAIT)
    assert is_running(name) is False  # even as a zombie
    process.communicate()
    assert is_running(name) is False


def test_a_later_process_with_the_same_number_is_another_one() -> None:
    host, pid, start, machine = own_name().rsplit(":", 3)
    assert is_running(own_name())
    assert is_running(f"{host}:{pid}:{int(start) - 1}:{machine}") is False


def test_nothing_is_known_of_processes_on_other_machines() -> None:
    name = own_name()[:-1] + "z"
    assert [is_running(x) for x in (name, "", "nonsense")] == [None] * 3
    assert host_of("a:b:1:2:3") == "a:b"
