"""Machines of their own as far as one kernel goes: a hostname, a network, links that can be cut.

Each is a process in namespaces of its own; they end with it, and it with the tests. Only root may
make them, so tests that need them are skipped for anyone else.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Sequence

import pytest

_HOLD = """
import socket, sys

socket.sethostname(sys.argv[1])
print("ready", flush=True)
sys.stdin.read()
"""


class Host:
    """A machine named ``name`` with no network yet.

    Raises:
        OSError: if this machine does not allow it.
    """

    def __init__(self, name: str) -> None:
        self.name = name
        self._holder = subprocess.Popen(
            ["unshare", "--net", "--uts", sys.executable, "-S", "-c", _HOLD, name],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
        )
        assert self._holder.stdout is not None
        if not self._holder.stdout.readline():
            self.close()
            raise OSError("namespaces cannot be made here")
        self.ip("link", "set", "lo", "up")

    @property
    def pid(self) -> int:
        """A process in its namespaces."""
        return self._holder.pid

    def command(self, command: Sequence[str]) -> list[str]:
        """``command`` as a process of this host."""
        return ["nsenter", f"--target={self.pid}", "--net", "--uts", *command]

    def ip(self, *arguments: str) -> None:
        """``ip ARGUMENTS`` on this host."""
        subprocess.run(self.command(["ip", *arguments]), check=True)

    def close(self) -> None:
        """Let go of it; its processes lose their network with its links."""
        self._holder.communicate()


class Link:
    """A cable from ``here`` to ``there``, with the addresses of both ends."""

    def __init__(self, here: Host, there: Host, number: int) -> None:
        self._end = here
        self._name = f"to-{there.name}"
        self.here, self.there = (f"198.18.{number}.{end}" for end in (1, 2))  # RFC 2544: tests
        names = (self._name, f"to-{here.name}")
        ends = [
            ["name", names[0], "netns", str(here.pid)],
            ["name", names[1], "netns", str(there.pid)],
        ]
        subprocess.run(
            ["ip", "link", "add", *ends[0], "type", "veth", "peer", *ends[1]], check=True
        )
        for host, name, address in zip((here, there), names, (self.here, self.there), strict=True):
            host.ip("address", "add", f"{address}/24", "dev", name)
            host.ip("link", "set", name, "up")

    def cut(self) -> None:
        """Nothing passes from now on, and nobody is told."""
        self._end.ip("link", "set", self._name, "down")

    def mend(self) -> None:
        """All passes again."""
        self._end.ip("link", "set", self._name, "up")


def need_hosts() -> None:
    """Skip the test where hosts cannot be made."""
    missing = [name for name in ("ip", "unshare", "nsenter") if shutil.which(name) is None]
    if missing or os.geteuid() != 0:
        pytest.skip(f"needs root and {', '.join(missing or ['namespaces'])}")
    try:
        Host("try").close()
    except OSError as error:
        pytest.skip(str(error))
