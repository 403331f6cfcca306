"""The driver on a Ray cluster, whose nodes are all on this machine, with stand-ins for runs."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import closing
from importlib.util import find_spec
from pathlib import Path
from types import SimpleNamespace

import pytest

from ablations.runs.options import Options
from ablations.runs.process import GRACE_SECONDS, Job
from ablations.runs.supervise import Wish
from experiments.records.attempt import read_attempt
from experiments.records.progress import RunState, read_progress
from tests.ablations.samples import prepare_stand_ins, small_plan
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


def test_the_driver_leaves_the_cluster_only_after_its_last_attempts(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A driver that fails: the runs on the cluster may still write their checkpoints."""
    import ray

    from ablations.runs.on_ray import RayExecutor

    happened = list[str]()
    node = {
        "NodeID": "1" * 56,
        "NodeManagerHostname": "here",
        "Alive": True,
        "Resources": {"CPU": 2.0},
    }

    class Task:
        def __init__(self, function: object) -> None: ...
        def options(self, **asked: object) -> Task:
            return self

        def remote(self, job: Job, *others: object) -> str:
            return job.name

    def wait(tasks: list[str], *, timeout: float, **asked: object) -> tuple[list[str], list[str]]:
        if timeout >= GRACE_SECONDS:
            happened.append(f"waited for {' and '.join(sorted(tasks))}")
            return tasks, []
        return [], tasks

    monkeypatch.setattr(ray, "init", lambda **asked: SimpleNamespace(dashboard_url=""))
    monkeypatch.setattr(ray, "nodes", lambda: [node])
    monkeypatch.setattr(ray, "remote", Task)
    monkeypatch.setattr(ray, "wait", wait)
    monkeypatch.setattr(ray, "cancel", lambda task, **asked: happened.append(f"stopped {task}"))
    monkeypatch.setattr(ray, "shutdown", lambda: happened.append("left"))
    executor = RayExecutor("auto", Options(), threads=1)
    plan = small_plan()
    for cell, there in zip(plan.cells, executor.places(), strict=True):
        job = Job(root=tmp_path, name=str(cell), experiment=plan.experiment(cell))
        executor.start(job, there)
    assert not executor.ended()
    executor.stop(Wish.STOP)
    executor.close()
    first, second = map(str, plan.cells)
    stops = [f"stopped {first}", f"stopped {second}"]
    assert happened == [*stops, f"waited for {first} and {second}", "left"]


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
