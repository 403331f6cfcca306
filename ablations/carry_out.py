"""Carry out the runs that are left, and report."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable
from contextlib import suppress
from pathlib import Path

from rich.console import Console

from ablations.runs.attempts import clear_failures, is_given_up, read_ended
from ablations.runs.driver import Driver, Executor
from ablations.runs.options import Options
from ablations.runs.study import Cells
from ablations.runs.supervise import LocalExecutor
from ablations.status.status import DirectoryReader
from ablations.status.view import View
from transformer.config import Config
from transformer.errors import InputError


def without_end(cells: Cells, names: Iterable[str]) -> list[str]:
    """Those of the runs ``names`` that have not ended for good."""
    return [name for name in names if read_ended(cells.root / name) is None]


def carry_out(
    cells: Cells,
    names: Iterable[str],
    base: Config,
    options: Options,
    report: Callable[[Path], Callable[[], None]],
) -> int:
    """Carry out the runs ``names`` of the cells, and report.

    Args:
        report: writes the report of the directory, and returns what prints it

    Returns:
        The exit code: 1 if some runs are given up, 128 plus the signal that ended it.
    """
    names = list(names)[options.shard.number - 1 :: options.shard.count]
    if options.retry_failed:
        for name in names:
            clear_failures(cells.root / name)
    left = without_end(cells, names)
    given_up = [name for name in left if is_given_up(cells.root / name)]
    console = Console(highlight=False, file=sys.stdout)  # whoever replaces that later
    view, status = View(console), DirectoryReader(cells.root)

    def say(text: str) -> None:
        console.print(text, soft_wrap=True)

    def show() -> None:
        with suppress(InputError):  # an unreadable file is no reason to stop a training
            view.update(status.read)

    executor, where = _executor(options, cells.root, base.training.threads or 1)
    at_a_time = min(len(executor.places()), max(1, len(left)))
    done = f"{len(names)} runs, {len(names) - len(left)} done before"
    say(f"{cells.title} in {cells.root}: {done}, {at_a_time} at a time on {where}")
    waiting = [name for name in left if name not in given_up]
    driver = Driver(cells, executor, waiting, options, note=view.note, show=show)
    try:
        with view:
            received = driver.run()
    finally:
        print_report = report(cells.root)
    print_report()
    if received is not None:
        say("stopped; the same command continues from here")
        return 128 + received
    if given_up := [*given_up, *driver.given_up]:
        say(f"{len(given_up)} given up: run … --retry-failed tries them again")
    return 1 if given_up else 0


def _executor(options: Options, root: Path, threads: int) -> tuple[Executor, str]:
    """What carries runs out, and how to say where."""
    if options.ray is None:
        places = options.here(threads)
        devices = places[0].devices
        several = f"{len(devices)} GPUs each" if len(devices) > 1 else "the GPU"
        return LocalExecutor(places), several if devices else "the CPU"
    from ablations.runs.on_ray import RayExecutor  # which imports ray, an extra

    executor = RayExecutor(options.ray, root, options, threads)
    where = f", whose dashboard is at {executor.dashboard}" if executor.dashboard else ""
    return executor, f"the Ray cluster{where}"
