"""Time runs by the driver in turn with plain processes."""

from __future__ import annotations

import argparse
import dataclasses
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from ablations.tables.cells import TableCells
from ablations.tables.plan import claim_plan, make_plan
from ablations.tables.scales import QUICK
from ablations.tables.table import Table, row
from ablations.tables.table3 import BASE
from experiments.records.result import load_result
from experiments.run import run

ONE_ROW = Table(name="overhead", title="The driver's overhead", base=BASE, rows=(row("base"),))
_PLACES = 2
_WITHOUT = "from bench.overhead import train_part; train_part({!r}, {})"


def train_part(root: str, part: int) -> None:
    """Train every second run of a table in this process."""
    cells = TableCells(Path(root))
    for cell in cells.plan.cells[part::_PLACES]:
        run(cells.plan.experiment(cell), cell.directory(cells.root), log="none")


def measure_overhead(runs: int, steps: int) -> None:
    """Train the same ``runs`` on two cores, by ``ablations run`` and by two plain processes."""
    scale = dataclasses.replace(QUICK, max_steps=steps)
    plan = make_plan(ONE_ROW, scale, ONE_ROW.rows, range(1, runs + 1), threads=1)
    with tempfile.TemporaryDirectory(prefix="overhead-") as folder:
        (table := Path(folder) / "table.py").write_text(
            "from dataclasses import replace\n"
            "from bench.overhead import ONE_ROW, QUICK\n"
            f"scale = replace(QUICK, name='bench', max_steps={steps})\n"
            "TABLE = replace(ONE_ROW, scales=(scale,))\n"
        )
        ours, plain = Path(folder) / "driver", Path(folder) / "plain"
        claim_plan(plain, plan)
        command = [sys.executable, "-m", "ablations", "run", str(table), "--scale", "bench"]
        command += ["--seeds", f"1-{runs}", "--directory", str(ours), "--workers", str(_PLACES)]
        seconds = [
            _time([[*command, "--threads", "1", "--log", "none"]]),
            _time([[sys.executable, "-c", _WITHOUT.format(str(plain), n)] for n in range(_PLACES)]),
        ]
        results = [[load_result(x.directory(root)) for x in plan.cells] for root in (ours, plain)]
    scores = [[result and result.perplexity for result in each] for each in results]
    print(
        f"{runs} runs of {steps:,} steps: with the driver and a report {seconds[0]:.1f} s, without "
        f"{seconds[1]:.1f} s, {seconds[0] / seconds[1] - 1:+.1%}; results "
        f"{'the same' if scores[0] == scores[1] else 'NOT the same'}"
    )


def _time(commands: list[list[str]]) -> float:
    """Seconds until all have ended that begin at the same time."""
    began = time.monotonic()
    processes = [subprocess.Popen(command) for command in commands]
    if any(process.wait() for process in processes):
        raise ChildProcessError("a run has failed")
    return time.monotonic() - began


PARSER = argparse.ArgumentParser(prog="python -m bench.overhead", description=__doc__)
PARSER.add_argument("--runs", type=int, default=4)
PARSER.add_argument("--steps", type=int, default=1_600)


if __name__ == "__main__":
    measure_overhead(**vars(PARSER.parse_args()))
