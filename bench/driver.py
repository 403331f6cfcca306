"""Measure what the driver costs: `python -m bench.driver`.

`scale` carries out a table of stand-in runs, which sleep, at many places, and prints the
processor's time for each run, memory, and the seconds of `status` and `report`. `overhead` trains
runs of about a minute at two places, by the driver and without it.
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
    """Train the same runs by the driver at two places, and in two processes without it."""
    plan = make_plan(
        _ONE_ROW, dataclasses.replace(QUICK, max_steps=steps), _ONE_ROW.rows, range(1, trials + 1)
    )
    with tempfile.TemporaryDirectory(prefix="driver-") as folder:
        roots = [Path(folder) / name for name in ("driver", "plain")]
        for root in roots:
            claim_plan(root, plan)
        ours = [sys.executable, "-m", __spec__.name]
        seconds = [
            _time([[*ours, "with", str(roots[0])]]),
            _time([[*ours, "without", str(roots[1]), "--part", part] for part in "01"]),
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


def _time(commands: list[list[str]]) -> float:
    """Seconds until all have ended that begin at the same time."""
    began = time.monotonic()
    processes = [subprocess.Popen(command) for command in commands]
    if any(process.wait() for process in processes):
        raise ChildProcessError("a run has failed")
    return time.monotonic() - began


def _carry_out(root: Path, *, with_driver: bool, part: int) -> None:
    cells = TableCells(root)
    if not with_driver:
        ours = cells.plan.cells[part::2]
        for cell in ours:
            run(cells.plan.experiment(cell), cell.directory(root), log="none")
        return
    Driver(
        cells,
        Study(cells),
        LocalExecutor([Place(0), Place(1)]),
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


PARSER = argparse.ArgumentParser(prog="python -m bench.driver", description=__doc__)
_WHAT = PARSER.add_subparsers(dest="what", required=True)
_SCALE = _WHAT.add_parser("scale")
_SCALE.add_argument("--runs", type=int, default=10_000)
_SCALE.add_argument("--places", type=int, default=200)
_SCALE.add_argument("--seconds", type=float, default=2.0, help="that a run sleeps")
_OVERHEAD = _WHAT.add_parser("overhead")
_OVERHEAD.add_argument("--trials", type=int, default=4)
_OVERHEAD.add_argument("--steps", type=int, default=1_600)
for _how in ("with", "without"):  # one side of the overhead
    _side = _WHAT.add_parser(_how)
    _side.add_argument("root", type=Path)
    _side.add_argument("--part", type=int, default=0)


def main() -> None:
    """Measure what the command line asks for."""
    words = PARSER.parse_args()
    if words.what == "scale":
        scale(words.runs, words.places, words.seconds)
    elif words.what == "overhead":
        overhead(words.trials, words.steps)
    else:
        _carry_out(words.root, with_driver=words.what == "with", part=words.part)


if __name__ == "__main__":
    main()
