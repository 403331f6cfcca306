"""Forks ``python -m ablations`` from a process that has imported it all already.

A storm starts dozens of workers; each import would take a second or two, and that of its fork
server several more.
"""

from __future__ import annotations

import gc
import importlib
import json
import os
import signal
import subprocess
import sys
import time
import traceback
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from multiprocessing import util
from pathlib import Path
from typing import Any

from ablations.runner.process import RunProcess
from tests.ablations.storm.fleet import send

_POLL_SECONDS = 0.01
_PRELOADED = (
    "ablations.run",
    "alembic.migration",
    "alembic.script",
    "jinja2",
    "psycopg",
    "sqlalchemy.dialects.postgresql.psycopg",
    "sqlalchemy.dialects.sqlite",
)


class Prefork:
    """The process that is forked from; it ends with :meth:`close` or with the tests.

    It imports ``modules`` besides what all workers need.
    """

    def __init__(self, modules: Sequence[str] = ()) -> None:
        self._process = subprocess.Popen(
            [sys.executable, "-m", __name__, *modules],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
        )

    def launch(
        self, command: Sequence[str], environment: Mapping[str, str], log: Path
    ) -> RunProcess:
        """Start ``command``, which is :meth:`Place.command`'s, in the log's folder."""
        order = {"command": command[2:], "environment": dict(environment), "log": str(log)}
        return _Forked(self, self.ask(order))

    def ask(self, order: Mapping[str, Any]) -> Any:
        """What it answers to an order."""
        assert self._process.stdin is not None and self._process.stdout is not None
        self._process.stdin.write(json.dumps(order).encode() + b"\n")
        self._process.stdin.flush()
        return json.loads(self._process.stdout.readline())

    def close(self) -> None:
        """Let it end."""
        self._process.communicate()


@dataclass(slots=True)
class _Forked:
    prefork: Prefork
    pid: int
    returncode: int | None = None

    def poll(self) -> int | None:
        if self.returncode is None:
            self.returncode = self.prefork.ask({"pid": self.pid})
        return self.returncode

    def wait(self, timeout: float | None = None) -> int:
        deadline = None if timeout is None else time.monotonic() + timeout
        while (code := self.poll()) is None:
            if deadline is not None and time.monotonic() > deadline:
                raise subprocess.TimeoutExpired(f"process {self.pid}", timeout or 0.0)
            time.sleep(_POLL_SECONDS)
        return code


def _serve() -> None:
    for name in (*_PRELOADED, *sys.argv[1:]):
        importlib.import_module(name)
    children: set[int] = set()
    for line in sys.stdin:
        order = json.loads(line)
        if "pid" in order:
            pid, status = os.waitpid(order["pid"], os.WNOHANG)
            answer = os.waitstatus_to_exitcode(status) if pid else None
            children.discard(pid)
        else:
            answer = os.fork()
            if not answer:
                _become(**order)
            children.add(answer)
        print(json.dumps(answer), flush=True)
    for pid in children:
        send(pid, signal.SIGKILL)


def _become(command: list[str], environment: dict[str, str], log: str) -> None:
    os.setsid()
    os.chdir(Path(log).parent)
    os.environ.clear()
    os.environ.update(environment)
    with open(os.devnull, "rb") as source, open(log, "ab") as target:  # noqa: PTH123
        for number, file in enumerate((source, target, target)):
            os.dup2(file.fileno(), number)
    sys.stdout.reconfigure(line_buffering=True)  # type: ignore[union-attr]
    util.spawnv_passfds = _fork_in_place_of_spawning  # type: ignore[attr-defined]
    sys.argv = ["ablations", *command[1:]]
    code = 1
    try:
        code = importlib.import_module(command[0]).main()
    except BaseException:
        traceback.print_exc()
    finally:
        sys.stdout.flush()
        os._exit(code)


def _fork_in_place_of_spawning(_path: str, arguments: list[str], passed: list[int]) -> int:
    """Begin multiprocessing's fork server, or its tracker, without importing all anew."""
    pid = os.fork()
    if pid:
        return pid
    try:
        gc.freeze()  # nothing of the worker's is ended from here
        for number in (signal.SIGINT, signal.SIGTERM, signal.SIGUSR1):
            signal.signal(number, signal.SIG_DFL)
        for descriptor in map(int, os.listdir("/proc/self/fd")):  # noqa: PTH208
            if descriptor > 2 and descriptor not in passed:
                with suppress(OSError):
                    os.close(descriptor)
        exec(arguments[-1], {})
    finally:
        os._exit(0)


if __name__ == "__main__":
    _serve()
