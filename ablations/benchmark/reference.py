"""A table's cells one after the other in this process, with no fleet: what a fleet is compared to.

``python -m ablations.benchmark.reference DIRECTORY`` carries out the plan of the directory.
"""

from __future__ import annotations

import importlib
import sys
import time
from pathlib import Path

from ablations.runner.warm import PRELOADED
from ablations.tables.plan import load_plan
from experiments.command_line import show_warnings_in_one_line
from experiments.run.files import write_json
from experiments.run.run import run

TIMES_FILE = "times.json"


def run_reference(root: Path) -> None:
    """Run them, and write the seconds since the epoch at which each began and ended. All imports
    are over before the first begins.
    """
    show_warnings_in_one_line()
    for module in PRELOADED:
        importlib.import_module(module)
    plan = load_plan(root)
    times: dict[str, tuple[float, float]] = {}
    for cell in plan.cells:
        began_at = time.time()
        run(plan.experiment(cell), cell.directory(root), splits=("valid",))
        times[str(cell)] = began_at, time.time()
        write_json(root / TIMES_FILE, times)


if __name__ == "__main__":
    run_reference(Path(sys.argv[1]))
