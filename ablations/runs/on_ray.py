"""An executor on a Ray cluster."""

from __future__ import annotations

import hashlib
import logging
import os
import re
import signal
import time
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from types import FrameType
from typing import Any

# Ray reads these when it is imported. A cluster without authentication runs anybody's code.
os.environ.setdefault("RAY_AUTH_MODE", "token")
os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")

import ray
import ray._private.worker as ray_worker
import ray.exceptions
from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

from ablations.runs import process
from ablations.runs.options import Options
from ablations.runs.process import Job, Place, Start
from ablations.runs.supervise import AttemptEnd, Request, lost, supervise
from experiments.records.progress import GRACE_SECONDS, RunState
from transformer.errors import InputError

# The driver's environment variables that runs get too: the project's settings.
_PASSED = re.compile("DATA_|LRU_CACHE_|OMP_NUM_|ONEDNN_|PENN_|SACREBLEU|TRANSFORMER_|WANDB_")
_LOOK_SECONDS = 2.0  # between looks at the list of nodes


class RayExecutor:
    """Runs on the nodes of a cluster; see :class:`ablations.runs.driver.Executor`.

    Args:
        address: the cluster's address, or ``auto``
        options: how many devices a run has, or how many runs share one
        threads: CPU threads of each process
    """

    def __init__(self, address: str, options: Options, threads: int) -> None:
        process.forget_rank()
        self._project = _digest()
        self._ranks = options.devices_per_trial
        self._attempts: dict[Any, tuple[Job, Place]] = {}
        self._nodes: list[Any] = []
        self._unfit: set[str] = set()
        self._request = Request.CONTINUE
        self._look_at = 0.0
        self.where = "the Ray cluster"
        if dashboard := _connect(address):
            self.where += f", whose dashboard is at {dashboard}"
        self._needs = {"CPU": float(self._ranks * threads)}
        if any(node["Resources"].get("GPU") for node in ray.nodes() if node["Alive"]):
            self._needs["GPU"] = self._ranks / options.trials_per_device
        if not self.places():
            self.close()
            wanted = ", ".join(f"{x:g} {name}" for name, x in self._needs.items())
            raise InputError(f"no node of the Ray cluster has room for a run, which needs {wanted}")

    def places(self) -> Sequence[Place]:
        """As many places on each node as its resources allow, busy or free."""
        if time.monotonic() >= self._look_at:
            self._look_at = time.monotonic() + _LOOK_SECONDS
            self._nodes = [node for node in ray.nodes() if node["Alive"]]
        found: list[Place] = []
        for node in self._nodes:
            name, host, there = node["NodeID"], node["NodeManagerHostname"], node["Resources"]
            fitting = int(min(there.get(kind, 0) / need for kind, need in self._needs.items()))
            if name in self._unfit:
                continue
            for number in range(fitting):
                found.append(Place(number, ranks=self._ranks, node=name, host=host))
        return found

    def start(self, job: Job, place: Place) -> None:
        passed = {name: value for name, value in os.environ.items() if _PASSED.match(name)}
        job = replace(job, environment={**passed, **job.environment})
        task = ray.remote(_supervise_here).options(
            num_cpus=self._needs["CPU"],
            num_gpus=self._needs.get("GPU", 0),
            max_retries=0,
            scheduling_strategy=NodeAffinitySchedulingStrategy(place.node, soft=False),
        )
        self._attempts[task.remote(job, place, process.start, self._project)] = job, place

    def ended(self) -> Sequence[tuple[str, AttemptEnd]]:
        if not self._attempts:
            return []
        done, _ = ray.wait([*self._attempts], num_returns=len(self._attempts), timeout=0)
        ends = [(task, *self._attempts.pop(task)) for task in done]
        return [(job.name, self._end(task, job, place)) for task, job, place in ends]

    def _end(self, task: Any, job: Job, place: Place) -> AttemptEnd:
        """The end of an attempt; its node or its Ray process may be gone."""
        try:
            end = ray.get(task)
        except ray.exceptions.RayError as error:
            cause = getattr(error, "cause", None)
            if self._request or isinstance(cause or error, ray.exceptions.TaskCancelledError):
                return AttemptEnd(state=RunState.STOPPED, text="stopped")
            if cause is None:
                self._look_at = 0.0
                reason = f"its node was lost ({type(error).__name__})"
                return lost(job, reason)
            if isinstance(cause, OSError):  # such as a full disk
                raise cause from error
            end = f"it cannot run the project ({type(cause).__name__}: {_first_line(cause)})"
        if isinstance(end, AttemptEnd):
            return end
        self._unfit.add(place.node)
        text = f"node {place.host} of the Ray cluster is not used: {end}"
        if not self.places():
            raise InputError(f"{job.name}: {text}")
        return AttemptEnd(state=RunState.FAILED, text=text)

    def stop(self, request: Request) -> None:
        if request > self._request:
            self._request = request
            for task in self._attempts:
                ray.cancel(task)  # the first call stops the run, a second one kills it

    def close(self) -> None:
        """Wait for the attempts that are left, and disconnect from the cluster."""
        if self._attempts:
            ray.wait([*self._attempts], num_returns=len(self._attempts), timeout=GRACE_SECONDS + 5)
        ray.shutdown()


def _connect(address: str) -> str:
    """Connect to the cluster; return the address of its dashboard, empty without one."""
    # Ray would print pages for each node that it loses, and a line for each attempt to connect.
    logging.getLogger("ray").setLevel(logging.CRITICAL)
    setattr(ray_worker, "print_to_stdstream", lambda *_, **__: None)  # noqa: B010
    shown, nowhere = os.dup(2), os.open(os.devnull, os.O_WRONLY)
    os.dup2(nowhere, 2)
    try:
        context = ray.init(
            address=address, log_to_driver=False, configure_logging=False, namespace="ablations"
        )
    except Exception as error:  # Ray raises many kinds
        raise InputError(
            f"no Ray cluster can be used at {address} ({_first_line(error)}): start one with ray "
            "start, and give all machines the same token (RAY_AUTH_MODE=token and ray "
            "get-auth-token --generate before ray start; for a cluster without tokens set "
            "RAY_AUTH_MODE=disabled here)"
        ) from error
    finally:
        os.dup2(shown, 2)
        os.close(shown)
        os.close(nowhere)
    return str(context.dashboard_url or "")


def _first_line(error: Exception) -> str:
    return next(iter(str(error).splitlines()), type(error).__name__)


def _digest() -> str:
    """A checksum of the project's source, which may differ from its commit."""
    digest, top = hashlib.sha256(), Path(__file__).parents[2]
    for package in ("transformer", "experiments", "ablations"):
        for path in sorted((top / package).rglob("*.py")):
            digest.update(path.read_bytes())
    return digest.hexdigest()


def _supervise_here(job: Job, place: Place, start: Start, project: str) -> AttemptEnd | str:
    """Supervise an attempt as a task on this node; its end, or why this node cannot be used."""
    if not job.root.is_dir():
        return f"it does not see the directory {job.root}"
    if _digest() != project:
        return "it has another version of the project"
    process.forget_rank()
    request = Request.CONTINUE

    def receive(_number: int, _frame: FrameType | None) -> None:
        nonlocal request
        request = Request.KILL if request else Request.STOP

    given = ray.get_runtime_context().get_accelerator_ids().get("GPU", [])
    devices = tuple(int(x) if x.isdecimal() else x for x in given)
    # ray.cancel sends SIGINT, and Ray sends SIGTERM when the driver is gone.
    before = {number: signal.signal(number, receive) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        return supervise(job, replace(place, devices=devices), start, lambda: request)
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
