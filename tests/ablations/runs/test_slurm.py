"""The two SLURM scripts of docs/clusters.md, submitted to a real SLURM as they stand there.

``SLURM_CONF`` names its configuration; else ``../shared/slurm/two-nodes`` starts one of two nodes.
"""

from __future__ import annotations

import os
import re
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from importlib.util import find_spec
from pathlib import Path

import pytest

from experiments.records.run import read_run
from tests.ablations.storm.place import Place, make_place, run_undisturbed
from tests.experiments.samples import outcome

ROOT = Path(__file__).parents[3]
_TWO_NODES = ROOT.parent / "shared" / "slurm" / "two-nodes"
pytestmark = [pytest.mark.long, pytest.mark.timeout(900)]


@pytest.fixture(scope="module")
def slurm(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, str]]:
    """The environment in which sbatch reaches two nodes."""
    if shutil.which("sbatch") is None:
        pytest.skip("SLURM is not installed")
    if "SLURM_CONF" in os.environ:
        yield dict(os.environ)
        return
    if not _TWO_NODES.exists() or os.geteuid() != 0:
        pytest.skip("there is no SLURM here, and none can be started: set SLURM_CONF")
    folder = tmp_path_factory.mktemp("slurm")
    subprocess.run([_TWO_NODES, "start", folder], check=True, stdout=subprocess.DEVNULL)
    yield {**os.environ, "SLURM_CONF": str(folder / "slurm.conf")}
    subprocess.run([_TWO_NODES, "stop", folder], check=True)


class Cluster:
    """Submits the scripts of the docs over a small table of stand-ins."""

    def __init__(self, place: Place, environment: dict[str, str]) -> None:
        self._place = place
        self._environment = {**environment, **place.environment()}
        python = place.folder / ".venv" / "bin"
        python.mkdir(parents=True)
        for name, code in (
            ("python", f'exec {sys.executable} -m {place.command()[2]} "${{@:3}}"'),
            ("ray", f'exec {Path(sys.executable).with_name("ray")} "$@"'),
        ):
            (python / name).write_text(f"#!/bin/bash\n{code}\n")
            (python / name).chmod(0o755)

    def submit(self, kind: str, sizes: dict[str, str]) -> str:
        """Submit the script of that kind, for machines of other ``sizes``; its number."""
        page = (ROOT / "docs" / "clusters.md").read_text(encoding="utf-8")
        scripts = re.findall(r"```bash\n(.*?)```", page, flags=re.DOTALL)
        (script,) = [text for text in scripts if f"--job-name={kind} " in text]
        sizes = {
            "run table3 --scale paper --seeds 1,2,3": "run storm.py --scale tiny",
            "--chdir=/path/to/clone": f"--chdir={self._place.folder}",
            **sizes,
        }
        for theirs, ours in sizes.items():
            assert theirs in script, theirs
            script = script.replace(theirs, ours)
        script = script.replace("run storm.py", f"run {self._place.table} --directory out")
        (self._place.folder / f"{kind}.sh").write_text(script)
        return self.call("sbatch", "--parsable", f"{kind}.sh").strip()

    def states(self, job: str) -> list[str]:
        """The states of a job's tasks that have not ended."""
        return self.call("squeue", "--noheader", "--format=%T", "--array", f"--job={job}").split()

    def restarts(self, task: str) -> int:
        """How often a task was queued again."""
        (count,) = re.findall(r"Restarts=(\d+)", self.call("scontrol", "show", "job", task))
        return int(count)

    def call(self, *command: str) -> str:
        """What a command of SLURM prints."""
        folder, variables = self._place.folder, self._environment
        return subprocess.run(
            command, cwd=folder, env=variables, check=True, capture_output=True, text=True
        ).stdout

    def wait_for(self, holds: Callable[[], bool]) -> None:
        deadline = time.monotonic() + 700
        while not holds():
            said = [path.read_text()[-2000:] for path in self._place.folder.glob("slurm-*.out")]
            assert time.monotonic() < deadline, "\n".join(said)
            time.sleep(0.2)


def assert_all_as_undisturbed(place: Place) -> None:
    undisturbed = run_undisturbed(place, place.folder / "undisturbed")
    for cell in place.cells:
        assert read_run(cell.directory(place.out)).is_at_end, cell
        assert outcome(cell.directory(place.out)) == outcome(cell.directory(undisturbed)), cell


def test_the_tasks_of_an_array_share_a_table(slurm: dict[str, str], tmp_path: Path) -> None:
    place = make_place(tmp_path, steps=60, every=7, step_seconds=0.1)
    cluster = Cluster(place, slurm)
    sizes = {"--array=1-16": "--array=1-2", "ID/16": "ID/2"}
    sizes |= {"--gpus=1 --cpus-per-task=8 --mem=32G": "--cpus-per-task=1"}
    job = cluster.submit("table3", sizes)
    cluster.wait_for(lambda: any(place.out.glob("*/seed-1.attempt-*/checkpoints/*")))
    cluster.call("scancel", "--batch", "--signal=USR1", f"{job}_1")  # as near the time limit
    cluster.wait_for(lambda: cluster.restarts(f"{job}_1") == 1)
    cluster.wait_for(lambda: "RUNNING" in cluster.states(job))
    cluster.call("scancel", f"{job}_2")
    cluster.wait_for(lambda: not cluster.states(job))
    assert any(not read_run(cell.directory(place.out)).is_at_end for cell in place.cells)
    again = cluster.submit("table3", sizes)
    cluster.wait_for(lambda: not cluster.states(again))
    assert_all_as_undisturbed(place)


@pytest.mark.skipif(find_spec("ray") is None, reason="Ray is not installed")
def test_ray_inside_an_allocation(slurm: dict[str, str], tmp_path: Path) -> None:
    place = make_place(tmp_path, steps=60, every=7, step_seconds=0.1)
    cluster = Cluster(place, slurm)
    sizes = {
        "--nodes=4": "--nodes=2",
        "--gpus-per-node=8 --cpus-per-task=64 --mem=256G": "--cpus-per-task=1",
        "export ": f"export HOME={tmp_path} ",  # where Ray keeps its token
    }
    job = cluster.submit("table3-ray", sizes)
    running = "*/seed-1.attempt-*/checkpoints"
    try:
        cluster.wait_for(lambda: len([*place.out.glob(running)]) == 2)  # one on each node
        cluster.wait_for(lambda: not cluster.states(job))
    finally:  # a SLURM without cgroups leaves the head's processes
        for path in Path("/proc").glob("[0-9]*/cwd"):
            with suppress(OSError):
                if path.readlink() == place.folder:
                    os.kill(int(path.parent.name), signal.SIGKILL)
    assert_all_as_undisturbed(place)
