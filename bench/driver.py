"""Measure the driver's cost with runs that sleep."""

from __future__ import annotations

import argparse
import dataclasses
import resource
import tempfile
import time
from pathlib import Path

from ablations.folder import TableFolder
from ablations.report.report import write_report
from ablations.runs.driver import Driver
from ablations.runs.options import Options
from ablations.runs.process import Place
from ablations.runs.supervise import LocalExecutor
from ablations.runs.table_runs import TableRuns
from ablations.status.status import DirectoryReader
from ablations.tables.plan import make_plan
from ablations.tables.plan_file import claim_plan
from ablations.tables.scales import QUICK
from ablations.tables.table3 import TABLE as TABLE3
from experiments.records.experiment import DATA_FILE
from experiments.records.result import RESULT_FILE
from transformer.config import override
from transformer.files import read_bytes, write_atomically

_RESULTS = Path(__file__).parents[1] / "experiments" / "results"


@dataclasses.dataclass
class Sleeper:
    """A stand-in for a process, which ends by itself and leaves a result."""

    directory: Path
    ends_at: float
    earlier: Path  # the files of a finished run
    pid: int = 2**22  # which no process has

    def poll(self) -> int | None:
        """The exit code; None while it sleeps."""
        if time.monotonic() < self.ends_at:
            return None
        for name in (RESULT_FILE, DATA_FILE):
            if not (self.directory / name).exists():
                # The driver reads the directory meanwhile.
                write_atomically(self.directory / name, read_bytes(self.earlier / name))
        return 0


def measure_driver(runs: int, places: int, seconds: float) -> None:
    """Carry out about ``runs`` runs, seeds of all rows, that sleep for ``seconds``."""
    with tempfile.TemporaryDirectory(prefix="driver-") as folder:
        root = Path(folder)
        seeds = range(1, max(1, runs // len(TABLE3.rows)) + 1)
        plan = make_plan(TABLE3, QUICK, TABLE3.rows, seeds)
        claim_plan(root, dataclasses.replace(plan, base=override(plan.base, precision="fp32")))
        planned, began = TableRuns(root), time.monotonic()
        earlier = TableFolder(_RESULTS / "table3-quick").read("base/seed-1")
        executor = LocalExecutor(
            [Place(number) for number in range(places)],
            lambda directory, job, place: Sleeper(
                directory, time.monotonic() + seconds, earlier.files
            ),
        )
        reader, shown_at = DirectoryReader(root), 0.0

        def show() -> None:
            nonlocal shown_at
            if time.monotonic() > shown_at + 30:  # as often as it is printed to a log
                reader.read()
                shown_at = time.monotonic()

        driver = Driver(planned, executor, planned.names, Options(), note=lambda _: None, show=show)
        before = time.thread_time()
        driver.run()
        spent = 1000 * (time.thread_time() - before) / len(planned.names)
        took = time.monotonic() - began
        print(
            f"{len(planned.names):,} runs at {places} places in {took:.0f} s: {spent:.1f} ms of "
            f"processor time a run in the driver, {_resident():.0f} MiB at the end"
        )
        began = time.monotonic()
        DirectoryReader(root).read()
        status, began = time.monotonic() - began, time.monotonic()
        write_report(TableFolder(root))
        print(f"status {status:.1f} s, report {time.monotonic() - began:.1f} s", flush=True)


def _resident() -> float:
    """MiB of this process now."""
    pages = int(Path("/proc/self/statm").read_text(encoding="ascii").split()[1])
    return pages * resource.getpagesize() / 2**20


PARSER = argparse.ArgumentParser(prog="python -m bench.driver", description=__doc__)
PARSER.add_argument("--runs", type=int, default=10_000, help="number of runs")
PARSER.add_argument("--places", type=int, default=200, help="number of runs at a time")
PARSER.add_argument("--seconds", type=float, default=2.0, help="how long a run sleeps")


if __name__ == "__main__":
    measure_driver(**vars(PARSER.parse_args()))
