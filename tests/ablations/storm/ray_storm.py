"""A storm on a Ray cluster, whose nodes are lost, paused and added while it lasts."""

from __future__ import annotations

import signal
from collections.abc import Mapping

from tests.ablations.storm.place import Place
from tests.ablations.storm.processes import DriverProcess, parent_of, send
from tests.ablations.storm.ray_cluster import ENVIRONMENT, RayCluster
from tests.ablations.storm.storm import Storm, StormSettings


class RayStorm(Storm):
    """As a storm on this machine, with three nodes of one run each."""

    def __init__(self, place: Place, settings: StormSettings, cluster: RayCluster) -> None:
        super().__init__(place, settings)
        self._cluster = cluster
        self.options = ("--ray", cluster.address)
        self._raylets = [cluster.add_node(1) for _ in range(3)]

    def environment(self) -> Mapping[str, str]:
        """That of a driver of the cluster."""
        return self._place.environment(**ENVIRONMENT)

    def _kill_node(self, _driver: DriverProcess) -> str:
        raylet = self._random.choice(self._raylets)
        self._raylets.remove(raylet)
        self._cluster.remove_node(raylet)
        self._raylets.append(self._cluster.add_node(1))
        return f"lost node {raylet}, added {self._raylets[-1]}"

    def _pause_node(self, driver: DriverProcess) -> str:
        """For so long that the cluster gives it up; what wakes up then must write nothing."""
        running = {parent_of(parent_of(pid)): pid for pid in driver.runs}
        raylet = next((x for x in running if x in self._raylets), None)
        if raylet is None:
            return ""
        paused = [raylet, parent_of(running[raylet]), running[raylet]]
        for pid in paused:
            send(pid, signal.SIGSTOP)
        self._raylets.remove(raylet)
        self._raylets.append(self._cluster.add_node(1))

        def wake() -> None:
            for pid in paused:
                send(pid, signal.SIGCONT)

        return f"paused node {raylet} {self._later(wake)}, added {self._raylets[-1]}"
