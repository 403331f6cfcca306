"""A Ray cluster of several nodes on this machine, in a process of its own.

``python -m tests.ablations.storm.ray_cluster`` is that process: Ray must know how it authenticates
before it is imported.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

ENVIRONMENT = {
    "PYTHONPATH": str(Path(__file__).parents[3]),  # where nodes find the stand-ins
    "RAY_AUTH_MODE": "token",
    "RAY_AUTH_TOKEN": "a token of the tests",
    "RAY_USAGE_STATS_ENABLED": "0",
    "RAY_worker_niceness": "0",  # 15 by default: on a busy machine runs would stand still
}
_HEALTH = {"health_check_period_ms": 1000, "health_check_failure_threshold": 5}
_STORE_BYTES = 80 * 2**20


class RayCluster:
    """A cluster whose head has no room for runs, as others see it.

    Attributes:
        address: where drivers reach it
    """

    def __init__(self, folder: Path) -> None:
        with (folder / "cluster.txt").open("wb") as said:
            self._process = subprocess.Popen(
                [sys.executable, "-m", __name__],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=said,
                env={**os.environ, **ENVIRONMENT},
                text=True,
            )
        self.address = self._read()

    def add_node(self, cpus: int) -> int:
        """Add a node; the number of its raylet's process."""
        return self._ask("add", cpus)

    def remove_node(self, raylet: int) -> None:
        """Remove a node at once, as if it lost its power, unless it is gone already."""
        self._ask("remove", raylet)

    def close(self) -> None:
        """End all nodes."""
        self._process.communicate()

    def _ask(self, what: str, number: int) -> Any:
        assert self._process.stdin is not None
        self._process.stdin.write(f"{what} {number}\n")
        self._process.stdin.flush()
        return self._read()

    def _read(self) -> Any:
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        assert line, "the cluster has ended"
        return json.loads(line)


def _serve() -> None:
    from ray.cluster_utils import Cluster

    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)  # Ray prints
    head = {"num_cpus": 0, "include_dashboard": False, "_system_config": _HEALTH}
    cluster = Cluster(
        initialize_head=True, head_node_args=head | {"object_store_memory": _STORE_BYTES}
    )
    print(json.dumps(cluster.address), file=answers, flush=True)
    nodes: dict[int, Any] = {}
    for line in sys.stdin:
        what, number = line.split()
        answer = 0
        if what == "add":
            node = cluster.add_node(num_cpus=int(number), object_store_memory=_STORE_BYTES)
            answer = node.all_processes["raylet"][0].process.pid
            nodes[answer] = node
        else:
            cluster.remove_node(nodes.pop(int(number)), allow_graceful=False)
        print(json.dumps(answer), file=answers, flush=True)
    cluster.shutdown()


if __name__ == "__main__":
    _serve()
