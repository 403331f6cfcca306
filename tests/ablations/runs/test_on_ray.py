"""The driver on a Ray cluster, whose nodes are all on this machine, with stand-ins for runs."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import closing
from functools import partial
from importlib.util import find_spec
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from ablations.runs.options import Options
from ablations.runs.process import Job
from ablations.runs.supervise import Request
from experiments.records.attempt import read_attempt
from experiments.records.progress import GRACE_SECONDS, RunState, read_progress
from tests.ablations.samples import prepare_stand_ins, small_plan, start_stand_in
from tests.ablations.stand_in import STARTED_FILE
from tests.ablations.storm.place import (
    ROOT,
    Place,
    assert_as_undisturbed,
    make_place,
    run_undisturbed,
)
from tests.ablations.storm.processes import DriverProcess, parent_of, send
from tests.ablations.storm.ray_cluster import ENVIRONMENT, RayCluster

pytestmark = pytest.mark.skipif(
    find_spec("ray") is None or sys.platform != "linux", reason="needs Ray, on Linux"
)


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[RayCluster]:
    """A cluster without room for runs."""
    with closing(RayCluster(tmp_path)) as cluster:
        yield cluster


@pytest.fixture
def place(tmp_path: Path) -> Place:
    """A table that takes far longer than the faults of a test."""
    return make_place(tmp_path, steps=40, every=3, step_seconds=0.4)


def begin(place: Place, cluster: RayCluster, *options: str, **environment: str) -> DriverProcess:
    command = place.command(*place.run, "--ray", cluster.address, *options)
    return DriverProcess(command, place.environment(**{**ENVIRONMENT, **environment}), place.folder)


def wait_for(driver: DriverProcess, holds: Callable[[], bool]) -> None:
    deadline = time.monotonic() + 120
    while not holds():
        assert driver.lives and time.monotonic() < deadline, driver.last_words()
        time.sleep(0.05)


def assert_refused(driver: DriverProcess, message: str) -> None:
    assert driver.process.wait(180) == 2
    (line,) = driver.log.read_text().splitlines()
    assert line.startswith(f"python -m ablations: error: {message}")


def busy(driver: DriverProcess) -> set[int]:
    """The raylets of the nodes that have runs: a run's parent is Ray's process, whose parent is
    the raylet.
    """
    return {parent_of(parent_of(pid)) for pid in driver.runs}


def trains(place: Place, since: float) -> bool:
    """Whether an attempt begun since then trains; one on a lost node may live for some seconds."""
    directories = place.out.glob("*/*.attempt-*")
    found = ((read_attempt(each), read_progress(each)) for each in directories)
    return any(
        x and y and x.started_at > since and y.stage == RunState.TRAIN and y.updated_at > since
        for x, y in found
    )


@pytest.mark.slow
def test_a_table_survives_kills_a_lost_node_and_a_signal(place: Place, cluster: RayCluster) -> None:
    nodes = {cluster.add_node(1)}
    driver = begin(place, cluster)
    nodes.add(cluster.add_node(1))
    wait_for(driver, lambda: len(driver.runs) == 2)
    send(driver.runs[0], signal.SIGKILL)
    wait_for(driver, lambda: len(driver.runs) == 2)
    send(parent_of(driver.runs[0]), signal.SIGKILL)  # the process of Ray's that supervises it
    wait_for(driver, lambda: "its node was lost" in driver.last_words(999))
    wait_for(driver, lambda: bool(busy(driver) & nodes))
    lost_at = time.time()
    cluster.remove_node(min(busy(driver) & nodes))
    wait_for(driver, lambda: driver.last_words(999).count("its node was lost") > 1)
    wait_for(driver, lambda: trains(place, lost_at))
    send(driver.process.pid, signal.SIGTERM)
    assert driver.process.wait(60) == 143, driver.last_words()
    assert "seed-1: stopped after a checkpoint" in driver.last_words()
    attempts = [read_attempt(begun) for begun in place.out.glob("*/*.attempt-*")]
    assert attempts and not any(attempt and attempt.failures for attempt in attempts)

    prepare_stand_ins(place.out, {})  # they take no time from now on
    last = begin(place, cluster)
    assert last.process.wait(180) == 0, last.last_words(99)
    assert_as_undisturbed(place, run_undisturbed(place, place.folder / "undisturbed"))
    assert "at a time on the Ray cluster" in last.last_words(999)
    for noise in ("raylet", "core_worker", "Traceback", "INFO"):
        assert noise not in driver.last_words(999) + last.last_words(999)


class FakeRay:
    """Ray's functions without its processes: a task is carried out here when its end is fetched.

    Attributes:
        nodes: as Ray describes them
        gpus: what a task is given
        happened: what was asked of the cluster, in order
    """

    def __init__(self, *nodes: Mapping[str, float], gpus: Sequence[str] = ()) -> None:
        self.nodes = [
            {
                "NodeID": f"{number}" * 56,
                "NodeManagerHostname": f"node-{number}",
                "Alive": "lost" not in resources,
                "Resources": resources,
            }
            for number, resources in enumerate(nodes, 1)
        ]
        self.gpus, self.happened = gpus, list[str]()

    def init(self, **asked: object) -> Any:
        return SimpleNamespace(dashboard_url="")

    def remote(self, function: Callable[..., object]) -> Any:
        def options(**asked: object) -> Any:
            return SimpleNamespace(remote=lambda *arguments: partial(function, *arguments))

        return SimpleNamespace(options=options)

    def wait(self, tasks: list[Any], *, timeout: float, **asked: object) -> Any:
        if timeout >= GRACE_SECONDS:
            self.happened.append(f"waited for {len(tasks)}")
        return tasks, []

    def get_runtime_context(self) -> Any:
        return SimpleNamespace(get_accelerator_ids=lambda: {"GPU": [*self.gpus]})

    def install(self, monkeypatch: pytest.MonkeyPatch, options: Options, threads: int) -> Any:
        """Replace Ray by it; an executor on it."""
        import ray

        from ablations.runs.on_ray import RayExecutor

        for name in ("init", "remote", "wait", "get_runtime_context"):
            monkeypatch.setattr(ray, name, getattr(self, name))
        monkeypatch.setattr(ray, "nodes", lambda: self.nodes)
        monkeypatch.setattr(ray, "get", lambda task: task())
        monkeypatch.setattr(ray, "cancel", lambda task, **_: self.happened.append("stopped one"))
        monkeypatch.setattr(ray, "shutdown", lambda: self.happened.append("left"))
        return RayExecutor("auto", options, threads)


def start_all(executor: Any, root: Path) -> list[str]:
    """Start the runs of the small table, one at each place; their names."""
    plan = small_plan()
    for cell, there in zip(plan.cells, executor.places(), strict=True):
        job = Job(root=root, name=str(cell), experiment=plan.experiment(cell))
        executor.start(job, there)
    return [str(cell) for cell in plan.cells]


def test_the_driver_leaves_the_cluster_only_after_its_last_attempts(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also one that fails: its runs may still write their checkpoints."""
    ray = FakeRay({"CPU": 2.0})
    executor = ray.install(monkeypatch, Options(), threads=1)
    start_all(executor, tmp_path)
    executor.stop(Request.STOP)
    executor.close()
    assert ray.happened == ["stopped one", "stopped one", "waited for 2", "left"]


@pytest.mark.parametrize(
    ("nodes", "settings", "threads", "places"),
    [
        ([{"CPU": 8.0}, {"CPU": 3.0}], {}, 3, ["node-1", "node-1", "node-2"]),
        ([{"CPU": 8.0, "GPU": 2.0}], {}, 1, ["node-1"] * 2),
        ([{"CPU": 8.0, "GPU": 2.0}], {"trials_per_device": 2}, 1, ["node-1"] * 4),
        ([{"CPU": 8.0, "GPU": 4.0}], {"devices_per_trial": 2}, 1, ["node-1"] * 2),
        ([{"CPU": 3.0, "GPU": 4.0}], {"devices_per_trial": 2}, 1, ["node-1"]),
        ([{"CPU": 8.0, "GPU": 1.0}, {"CPU": 8.0}], {}, 1, ["node-1"]),
        ([{"CPU": 2.0}, {"CPU": 2.0, "lost": 1.0}], {}, 1, ["node-1"] * 2),
    ],
)
def test_a_node_has_as_many_places_as_its_resources_allow(
    nodes: list[dict[str, float]],
    settings: dict[str, Any],
    threads: int,
    places: list[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    executor = FakeRay(*nodes).install(monkeypatch, Options(**settings), threads)
    assert [place.host for place in executor.places()] == places


@pytest.mark.slow
def test_a_task_has_the_gpus_that_ray_gave_it_and_leaves_its_process_as_it_was(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    prepare_stand_ins(tmp_path, {})
    monkeypatch.setattr("ablations.runs.process.start", start_stand_in)
    executor = FakeRay({"CPU": 2.0, "GPU": 2.0}, gpus=["3"]).install(monkeypatch, Options(), 1)
    names = start_all(executor, tmp_path)
    handlers = [signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)]
    assert [(name, end.state) for name, end in executor.ended()] == [(x, "done") for x in names]
    assert [signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)] == handlers
    assert (tmp_path / STARTED_FILE).read_text().split()[1::3] == ["3", "3"]
    assert not executor.ended()


@pytest.mark.slow  # Ray asks for 20 s
def test_a_cluster_without_room_or_with_another_token_is_refused(
    place: Place, cluster: RayCluster
) -> None:
    message = "no node of the Ray cluster has room for a run, which needs"
    assert_refused(begin(place, cluster, "--threads", "64"), message)
    driver = begin(place, cluster, RAY_AUTH_TOKEN="another")
    assert_refused(driver, "no Ray cluster can be used at")
    assert not (place.out / "table.json").exists()


@pytest.mark.slow
@pytest.mark.parametrize(
    ("mount", "message"),
    [
        ("-t tmpfs none {folder}", "it does not see the directory {folder}/out"),
        ("--bind {folder}/other.py {root}/ablations/files.py", "it has another version of"),
        ("-t tmpfs none {root}/ablations", "it cannot run the project ("),
    ],
)
def test_a_node_that_is_unlike_the_driver_is_named(
    mount: str, message: str, place: Place, cluster: RayCluster
) -> None:
    """A node that sees other files, as far as one machine goes."""
    if os.geteuid() != 0 or subprocess.run(["unshare", "--mount", "true"], check=False).returncode:
        pytest.skip("needs root, who may mount a file system for one process")
    names = {"folder": str(place.folder), "root": str(ROOT)}
    files = (ROOT / "ablations" / "files.py").read_text() + "# changed\n"
    (place.folder / "other.py").write_text(files)
    ray = Path(sys.executable).with_name("ray")
    join = f"{ray} start --address={cluster.address} --num-cpus=1 --block"
    node = subprocess.Popen(
        ["unshare", "--mount", "sh", "-c", f"mount {mount.format(**names)}; exec {join}"],
        env={**os.environ, **ENVIRONMENT},
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        start_new_session=True,
    )
    try:
        driver = begin(place, cluster)
        while "no node of the Ray cluster" in driver.last_words() or driver.lives:
            if not driver.lives:  # the node had not joined yet
                driver = begin(place, cluster)
            time.sleep(0.2)
        assert driver.process.returncode == 2
        assert f"of the Ray cluster is not used: {message.format(**names)}" in driver.last_words()
        assert not list(place.out.glob("base/*"))
    finally:
        os.killpg(node.pid, signal.SIGKILL)
        node.wait()
