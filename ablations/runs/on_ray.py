"""A Ray cluster as an executor."""

from __future__ import annotations

import hashlib
import logging
import os
import platform
import signal
import sys
import time
import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from types import FrameType
from typing import Any

# Ray reads these when it is imported. An unauthenticated cluster runs anybody's code.
os.environ.setdefault("RAY_AUTH_MODE", "token")
os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")

import ray
import ray.exceptions
from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

from ablations.runs import process
from ablations.runs.attempts import locate, record_failure
from ablations.runs.executor import AttemptEnd, Job, Place, Start
from ablations.runs.supervise import Wish, supervise
from experiments.records.progress import RunState
from transformer.errors import InputError

# What a node's process has of the driver's environment: the project's own settings.
_PASSED = (
    "DATA_",
    "LRU_CACHE_CAPACITY",
    "OMP_NUM_THREADS",
    "ONEDNN_",
    "PENN_TREEBANK",
    "SACREBLEU",
    "TRANSFORMER_VARIANTS",
    "WANDB_",
)
_LOOK_SECONDS = 2.0  # between looks at which nodes there are
_CHECK_SECONDS = 120.0  # a node's first process imports much
_GRACE_SECONDS = 25.0


class RayExecutor:
    """Runs on the nodes of a cluster; see :class:`ablations.runs.executor.Executor`.

    Args:
        address: of the cluster, or ``auto``
        root: the directory of the runs, which all nodes must see
        note: prints a line for the user
        devices: GPUs of a run, or processes without any in the cluster
        sharing: runs on a GPU
        threads: of the CPU for each process
        start: starts a run's process on its node
    """

    def __init__(
        self,
        address: str,
        root: Path,
        note: Callable[[str], None],
        *,
        devices: int = 1,
        sharing: int = 1,
        threads: int = 1,
        start: Start | None = None,
    ) -> None:
        self._root, self._note = root.absolute(), note
        self._ranks = devices
        self._needs = {"CPU": float(devices * threads)}
        self._start_process = start or process.start
        self._attempts: dict[Any, Job] = {}
        self._nodes: dict[str, Any] = {}  # the sound ones
        self._unfit: set[str] = set()
        self._wish = Wish.CONTINUE
        self._look_at = 0.0
        self._output = _RayOutput()
        try:
            self.dashboard = _connect(address)
            found = _alive()
            if any(node["Resources"].get("GPU") for node in found.values()):
                self._needs["GPU"] = devices / sharing
            for problem in self._check(found).values():
                raise InputError(problem)
            self._nodes = found
            if not self.places():
                wanted = ", ".join(f"{x:g} {name}" for name, x in self._needs.items())
                raise InputError(
                    f"no node of the Ray cluster has room for a run, which needs {wanted}"
                )
        except BaseException:
            self.close()
            raise

    def places(self) -> Sequence[Place]:
        """As many places on each node as it has the resources for, whoever uses them now.

        Nodes that have joined are taken in, and those that have left forgotten.
        """
        if time.monotonic() >= self._look_at:
            self._look_at = time.monotonic() + _LOOK_SECONDS
            found = _alive()
            new = {x: found[x] for x in found if x not in self._nodes and x not in self._unfit}
            for name, problem in self._check(new).items():
                self._note(f"not used: {problem}")
                self._unfit.add(name)
            self._nodes = {x: found[x] for x in found if x not in self._unfit}
        return [
            Place(number, ranks=self._ranks, node=name, host=node["NodeManagerHostname"])
            for name, node in self._nodes.items()
            for number in range(_fitting(self._needs, node["Resources"]))
        ]

    def _check(self, nodes: Mapping[str, Any]) -> dict[str, str]:
        """What is wrong with each of ``nodes`` that cannot be used."""
        ours = _describe_project(self._root) if nodes else {}
        asked = {name: _on(name, _describe_project).remote(self._root) for name in nodes}
        deadline = time.monotonic() + _CHECK_SECONDS
        problems: dict[str, str] = {}
        for name, answer in asked.items():
            node = f"node {nodes[name]['NodeManagerHostname']} of the Ray cluster"
            try:
                theirs: dict[str, str] = ray.get(
                    answer, timeout=max(1.0, deadline - time.monotonic())
                )
            except ray.exceptions.TaskUnschedulableError:
                continue  # the node has just left
            except Exception as error:  # anything that an unlike installation raises
                problems[name] = f"{node} cannot import the project: {_first_line(error)}"
                continue
            unlike = [f"{x} is {theirs[x]}, here {y}" for x, y in ours.items() if theirs[x] != y]
            if unlike:
                problems[name] = f"{node}: {unlike[0]}"
        return problems

    def start(self, job: Job, place: Place) -> None:
        passed = {k: v for k, v in os.environ.items() if k.startswith(_PASSED)}
        job = replace(job, root=self._root, environment={**passed, **job.environment})
        cpus, gpus = self._needs["CPU"], self._needs.get("GPU", 0)
        task = _on(place.node, _attempt, num_cpus=cpus, num_gpus=gpus)
        self._attempts[task.remote(job, place, self._start_process)] = job

    def ended(self) -> Sequence[tuple[str, AttemptEnd]]:
        if not self._attempts:
            return []
        done, _ = ray.wait([*self._attempts], num_returns=len(self._attempts), timeout=0)
        return [
            (job.name, self._end(task, job)) for task in done if (job := self._attempts.pop(task))
        ]

    def _end(self, task: Any, job: Job) -> AttemptEnd:
        """The end of an attempt, whose node or whose process of Ray's may be gone."""
        try:
            return ray.get(task)
        except ray.exceptions.RayError as error:
            cause = getattr(error, "cause", None)
            if self._wish or isinstance(cause or error, ray.exceptions.TaskCancelledError):
                return AttemptEnd(state=RunState.STOPPED, text="stopped")
            if cause is not None:  # raised by the task itself: a full disk, or a bug
                raise cause from error
            if isinstance(error, ray.exceptions.TaskUnschedulableError):  # it never began
                self._look_at = 0.0
                text = "its node has left; it starts on another"
                return AttemptEnd(state=RunState.FAILED, text=text)
            reason = f"its node was lost ({type(error).__name__})"
        directory = locate(self._root / job.name)
        final = record_failure(directory, reason, (), killed=True, retries=job.retries)
        state = RunState.GIVEN_UP if final else RunState.FAILED
        then = "given up" if final else "it continues from its last checkpoint"
        return AttemptEnd(state=state, text=f"{reason}; {then}")

    def stop(self, *, kill: bool) -> None:
        wish = Wish.KILL if kill else Wish.STOP
        if wish > self._wish:
            self._wish = wish
            for task in self._attempts:
                ray.cancel(task)  # each call is one step further for the task

    def close(self) -> None:
        """Wait for the attempts that are left, and let go of the cluster."""
        if self._attempts:
            ray.wait([*self._attempts], num_returns=len(self._attempts), timeout=_GRACE_SECONDS)
        ray.shutdown()
        self._output.close()


class _RayOutput:
    """Drops the standard streams, to which Ray writes pages for each node that it loses; warnings
    of Python are still shown, and whoever holds the real streams writes to them.
    """

    def __init__(self) -> None:
        logging.getLogger("ray").setLevel(logging.CRITICAL)
        self._streams, self._show = (sys.stdout, sys.stderr), warnings.showwarning
        self._descriptor = os.dup(2)
        shown = os.fdopen(self._descriptor, "w", buffering=1, errors="replace", closefd=False)
        self._nowhere = Path(os.devnull).open("w", encoding="utf-8")  # noqa: SIM115 (until close)
        sys.stdout = sys.stderr = self._nowhere
        os.dup2(self._nowhere.fileno(), 2)
        warnings.showwarning = lambda message, category, name, line, file=None, text=None: (
            self._show(message, category, name, line, shown, text)
        )

    def close(self) -> None:
        os.dup2(self._descriptor, 2)
        os.close(self._descriptor)
        (sys.stdout, sys.stderr), warnings.showwarning = self._streams, self._show
        self._nowhere.close()


def _connect(address: str) -> str:
    """Connect to the cluster; the address of its dashboard, empty without one."""
    try:
        context = ray.init(
            address=address, log_to_driver=False, configure_logging=False, namespace="ablations"
        )
    except Exception as error:  # many kinds, for many reasons
        raise InputError(
            f"no Ray cluster can be used at {address} ({_first_line(error)}): start one with ray "
            "start, and give the same token to all (RAY_AUTH_MODE=token and ray get-auth-token "
            "--generate before ray start, or RAY_AUTH_MODE=disabled here for a cluster without)"
        ) from error
    return str(context.dashboard_url or "")


def _alive() -> dict[str, Any]:
    return {node["NodeID"]: node for node in ray.nodes() if node["Alive"]}


def _fitting(wanted: Mapping[str, float], there: Mapping[str, float]) -> int:
    """How many runs a node has the resources for."""
    return int(min(there.get(name, 0) / need for name, need in wanted.items()))


def _on(node: str, function: Callable[..., Any], **needs: float) -> Any:
    """``function`` as a task for that node alone, which is not tried again."""
    strategy = NodeAffinitySchedulingStrategy(node, soft=False)
    return ray.remote(function).options(
        **({"num_cpus": 0} | needs), max_retries=0, scheduling_strategy=strategy
    )


def _first_line(error: Exception) -> str:
    return next(iter(str(error).splitlines()), type(error).__name__)


def _describe_project(root: Path) -> dict[str, str]:
    """What must be the same on all nodes; the source may differ from its commit."""
    digest, top = hashlib.sha256(), Path(__file__).parents[2]
    for package in ("transformer", "experiments", "ablations"):
        for path in sorted((top / package).rglob("*.py")):
            digest.update(path.read_bytes())
    return {
        f"the directory {root}": "there" if root.is_dir() else "missing",
        "Python": platform.python_version(),
        "the project": digest.hexdigest()[:12],
    }


def _attempt(job: Job, place: Place, start: Start) -> AttemptEnd:
    """Supervise an attempt on this node, as a task whose cancellation is a wish."""
    wish = Wish.CONTINUE

    def receive(_number: int, _frame: FrameType | None) -> None:
        nonlocal wish
        wish = Wish.KILL if wish else Wish.STOP

    given = ray.get_runtime_context().get_accelerator_ids().get("GPU", [])
    devices = tuple(int(x) if x.isdecimal() else x for x in given)
    # ray.cancel raises what Ctrl-C would, and Ray sends SIGTERM when the driver is gone.
    before = {number: signal.signal(number, receive) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        return supervise(job, replace(place, devices=devices), start, lambda: wish)
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
