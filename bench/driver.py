"""Measure what the driver costs: `python -m bench.driver`.

`scale` carries out a table of stand-in runs, which sleep, at many places, and prints the
processor's time for each run, memory, and the seconds of `status` and `report`. `overhead` trains
runs of about a minute with the driver and without it, in turn.
"""

from __future__ import annotations

import argparse
import dataclasses
import resource
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from ablations.report.report import write_report
from ablations.runs.driver import Driver
from ablations.runs.executor import Job, Place
from ablations.runs.local import LocalExecutor
from ablations.runs.study import Study
from ablations.status.from_directory import DirectoryReader
from ablations.tables.cells import TableCells
from ablations.tables.plan import claim_plan, make_plan
from ablations.tables.scales import QUICK
from ablations.tables.table import Table, row
from ablations.tables.table3 import BASE
from ablations.tables.table3 import TABLE as TABLE3
from experiments.run.results import RESULT_FILE, load_result
from experiments.run.run import run

_RESULTS = Path(__file__).parents[1] / "experiments" / "results"
_ONE_ROW = Table(name="overhead", title="The driver's overhead", base=BASE, rows=(row("base"),))


@dataclasses.dataclass
class Sleeper:
    """A process that is none: it ends by itself, and leaves a result."""

    directory: Path
    ends_at: float
    pid: int = 2**22  # which no process has

    def poll(self) -> int | None:
        """The exit code; None while it sleeps."""
        if time.monotonic() < self.ends_at:
            return None
        if not (self.directory / RESULT_FILE).exists():
            shutil.copy(_RESULTS / "table3-quick" / "base" / "seed-1" / RESULT_FILE, self.directory)
        return 0


def scale(runs: int, places: int, seconds: float) -> None:
    """Carry out ``runs`` that sleep for ``seconds`` at so many places."""
    with tempfile.TemporaryDirectory(prefix="driver-") as folder:
        root = Path(folder)
        seeds = range(1, runs // len(TABLE3.rows) + 1)
        claim_plan(root, make_plan(TABLE3, QUICK, TABLE3.rows, seeds, precision="fp32"))
        cells, began = TableCells(root), time.monotonic()
        executor = LocalExecutor(
            [Place(number) for number in range(places)],
            lambda directory, job, place: Sleeper(directory, time.monotonic() + seconds),
        )
        reader, before, memory = DirectoryReader(root), _processor_seconds(), _resident()
        shown_at = 0.0

        def show() -> None:
            nonlocal shown_at
            if time.monotonic() > shown_at + 30:  # as often as a log has a line of it
                reader.read()
                shown_at = time.monotonic()

        driver = Driver(
            cells,
            Study(cells),
            executor,
            cells.names,
            lambda name, experiment: Job(root=root, name=name, experiment=experiment),
            note=lambda text: None,
            show=show,
        )
        own = time.thread_time()
        driver.run()
        spent = 1000 * (time.thread_time() - own) / len(cells.names)
        spent_in_all = 1000 * (_processor_seconds() - before) / len(cells.names)
        took = time.monotonic() - began
        print(
            f"{len(cells.names):,} runs at {places} places in {took:.0f} s: {spent:.1f} ms of "
            f"processor time a run in the driver, {spent_in_all:.1f} with the supervisors; "
            f"{memory:.0f} MiB at the beginning, {_resident():.0f} at the end"
        )
        began = time.monotonic()
        DirectoryReader(root).read()
        status, began = time.monotonic() - began, time.monotonic()
        write_report(root)
        print(f"status {status:.1f} s, report {time.monotonic() - began:.1f} s", flush=True)


def overhead(trials: int, steps: int) -> None:
    """Train the same runs by the driver, one at a time, and in one process without it."""
    plan = make_plan(
        _ONE_ROW, dataclasses.replace(QUICK, max_steps=steps), _ONE_ROW.rows, range(1, trials + 1)
    )
    with tempfile.TemporaryDirectory(prefix="driver-") as folder:
        roots = [Path(folder) / name for name in ("driver", "plain")]
        for root in roots:
            claim_plan(root, plan)
        seconds = [
            _time([sys.executable, "-m", __spec__.name, how, str(root)])
            for how, root in zip(("with", "without"), roots, strict=True)
        ]
        scores = [
            [getattr(load_result(cell.directory(root)), "perplexity", None) for cell in plan.cells]
            for root in roots
        ]
    print(
        f"{trials} runs of {steps:,} steps: with the driver {seconds[0]:.1f} s, without "
        f"{seconds[1]:.1f} s, {seconds[0] / seconds[1] - 1:+.1%}; results "
        f"{'the same' if scores[0] == scores[1] else 'NOT the same'}"
    )


def _time(command: list[str]) -> float:
    began = time.monotonic()
    subprocess.run(command, check=True)
    return time.monotonic() - began


def _carry_out(root: Path, *, with_driver: bool) -> None:
    cells = TableCells(root)
    if not with_driver:
        for cell in cells.plan.cells:
            run(cells.plan.experiment(cell), cell.directory(root), log="none")
        return
    Driver(
        cells,
        Study(cells),
        LocalExecutor([Place(0)]),
        cells.names,
        lambda name, experiment: Job(root=root, name=name, experiment=experiment, log="none"),
        note=lambda text: None,
        show=lambda: None,
    ).run()


def _processor_seconds() -> float:
    used = resource.getrusage(resource.RUSAGE_SELF)
    return used.ru_utime + used.ru_stime


def _resident() -> float:
    """MiB of this process now."""
    pages = int(Path("/proc/self/statm").read_text(encoding="ascii").split()[1])
    return pages * resource.getpagesize() / 2**20


def main() -> None:
    """Read the command line."""
    parser = argparse.ArgumentParser(description=__doc__)
    what = parser.add_subparsers(dest="what", required=True)
    large = what.add_parser("scale")
    large.add_argument("--runs", type=int, default=10_000)
    large.add_argument("--places", type=int, default=200)
    large.add_argument("--seconds", type=float, default=2.0)
    small = what.add_parser("overhead")
    small.add_argument("--trials", type=int, default=3)
    small.add_argument("--steps", type=int, default=1_500)
    for how in ("with", "without"):
        what.add_parser(how).add_argument("root", type=Path)
    words = parser.parse_args()
    if words.what == "scale":
        scale(words.runs, words.places, words.seconds)
    elif words.what == "overhead":
        overhead(words.trials, words.steps)
    else:
        _carry_out(words.root, with_driver=words.what == "with")


if __name__ == "__main__":
    main()
