"""The SLURM script of docs/clusters.md, its tasks as processes of this machine."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from ablations.tables.table import Cell
from experiments.run.results import load_result
from tests.ablations.postgresql import Server
from tests.ablations.samples import hangs, prepare_fakes, started, when

ROOT = Path(__file__).parents[3]
BASE, NARROW = Cell("base", 1), Cell("narrow", 1)
OURS = {
    "postgresql://me@host/table3": "{url}",
    "table3 --scale paper --seeds 1,2,3": (
        "pair.py --scale tiny --rows base,narrow --workers 1 --directory out"
    ),
}


class Array:
    """A job whose runs are stand-ins, in the folder ``place``."""

    def __init__(self, place: Path, url: str) -> None:
        page = (ROOT / "docs" / "clusters.md").read_text(encoding="utf-8")
        (script,) = re.findall(r"```bash\n(.*?)```", page, flags=re.DOTALL)
        for theirs, ours in OURS.items():
            assert theirs in script
            script = script.replace(theirs, ours.format(url=url))
        (place / "job.sh").write_text(script)
        python = place / ".venv" / "bin" / "python"
        python.parent.mkdir(parents=True)
        fake = f'exec {sys.executable} -m tests.ablations.runs.fake_ablations "${{@:3}}"'
        python.write_text(f"#!/bin/bash\n{fake}\n")
        python.chmod(0o755)
        (place / "pair.py").write_text("from tests.ablations.samples import SMALL_TABLE as TABLE")
        self._place = place

    def task(self, number: int) -> subprocess.Popen[bytes]:
        """Start one, with what SLURM sets."""
        slurm = {"ARRAY_TASK_ID": number, "JOB_ID": 7, "NTASKS": 1, "PROCID": 0, "LOCALID": 0}
        return subprocess.Popen(
            ["bash", "job.sh"],
            cwd=self._place,
            stdout=subprocess.DEVNULL,
            env={
                **os.environ,
                **{f"SLURM_{name}": str(value) for name, value in slurm.items()},
                "PYTHONPATH": str(ROOT),
                "CUDA_VISIBLE_DEVICES": "",
            },
        )


@pytest.mark.skipif(not Path("/bin/bash").exists(), reason="there is no bash")
def test_a_cancelled_task_loses_nothing(tmp_path: Path, postgresql: Server) -> None:
    out = tmp_path / "out"
    prepare_fakes(out, {BASE: "hang"})
    array = Array(tmp_path, postgresql.create("slurm"))
    first = array.task(1)
    when(lambda: hangs(out, BASE), lambda: None).join()
    prepare_fakes(out, {})
    second = array.task(2)
    when(lambda: load_result(NARROW.directory(out)) is not None, first.terminate).join()
    assert first.wait(60) == 143
    assert second.wait(60) == 0
    assert started(out) == ["base/seed-1", "narrow/seed-1", "base/seed-1"]
    assert load_result(BASE.directory(out)) is not None
