"""Carry out ``run`` and ``search``."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

from rich.console import Console

from ablations.files import CONFIRM, LAYERS_FILE
from ablations.report.report import write_report
from ablations.report.write import print_page
from ablations.runs.attempts import clear_failures, is_given_up, read_ended
from ablations.runs.driver import Driver
from ablations.runs.lock import lock_runs
from ablations.runs.options import Options
from ablations.runs.study import Cells
from ablations.search.cells import SearchCells
from ablations.search.confirm import plan_confirmation
from ablations.search.rungs import describe_rungs
from ablations.search.search import (
    Pruner,
    Sampler,
    claim_search,
    is_search,
    load_search,
    prepare_search,
    settle_search,
)
from ablations.search.search_report import write_search_report
from ablations.search.trials import read_trials, refuse_hopeless, write_best
from ablations.status.from_directory import DirectoryReader
from ablations.status.view import View
from ablations.tables.cells import TableCells
from ablations.tables.collect import collect
from ablations.tables.find import find_scale, load_table, parse_seeds, select_rows
from ablations.tables.plan import claim_plan, make_plan, settle_plan
from ablations.tracking.table_run import track_table_run
from experiments.records.experiment import CONFIG_FILE
from transformer.config import Config
from transformer.errors import InputError


def run_table(
    table: str,
    scale: str,
    *,
    seeds: str,
    rows: str | None,
    directory: Path | None,
    options: Options,
    earlier: Path | None = None,
) -> int:
    """Train what the table lacks and report it; the exit code."""
    declared = load_table(table)
    plan = make_plan(
        declared,
        find_scale(declared, scale),
        select_rows(declared, rows),
        parse_seeds(seeds),
        precision=options.precision,
        threads=options.threads,
    )
    root = directory or Path("runs") / f"{plan.table}-{plan.scale}"
    wanted = {str(cell) for cell in plan.cells}
    _check_free(root)
    if is_search(root):
        raise InputError(f"{root} belongs to a search: choose another --directory")
    plan = replace(plan, base=settle_plan(earlier or root, plan).base)
    options.check(plan.base)
    with lock_runs(root, options.shard):
        if earlier is not None:
            print(f"{len(collect(earlier, root))} finished runs taken from {earlier}")
        plan = claim_plan(root, plan)
        cells = TableCells(root)
        names = [name for name in cells.names if name in wanted]
        before = len(_without_end(cells))
        code = _carry_out(cells, names, plan.base, options, _report_table)
    if options.log == "wandb" and len(_without_end(cells)) != before:
        track_table_run(root)
    return code


def run_search(
    space: str,
    scale: str,
    *,
    trials: int,
    seed: int,
    directory: Path | None,
    options: Options,
    sampler: Sampler | None = None,
    pruner: Pruner | None = None,
    confirm: int | None = None,
) -> int:
    """Carry out the trials that a search lacks and report it; the exit code.

    Args:
        confirm: how many of the best trials to train again with other seeds, next to the base
    """
    search = prepare_search(
        space,
        scale,
        trials=trials,
        seed=seed,
        precision=options.precision,
        threads=options.threads,
    )
    root = directory or Path("runs") / search.name
    _check_free(root)
    search = settle_search(root, search, sampler=sampler, pruner=pruner)
    options.check(search.base)
    with lock_runs(root, options.shard):
        claim_search(root, search)
        print(describe_rungs(search))
        cells = SearchCells(root)
        code = _carry_out(cells, cells.names, search.base, options, _report_search)
        if confirm is None or code:
            return code
        plan = plan_confirmation(search, read_trials(search, root), confirm, root)
        claim_plan(root / CONFIRM, plan)
        again = TableCells(root / CONFIRM)
        return _carry_out(again, again.names, search.base, options, _report_confirmed)


def _report_table(root: Path) -> Callable[[], None]:
    text = write_report(root)
    return lambda: print_page(text, root)


def _report_search(root: Path) -> Callable[[], None]:
    search = load_search(root)
    trials = read_trials(search, root)
    write_best(search, trials, root)
    text = write_search_report(root)

    def show() -> None:
        print_page(text, root)
        refuse_hopeless(search, trials)

    return show


def _report_confirmed(root: Path) -> Callable[[], None]:
    write_report(root)
    return _report_search(root.parent)


def _check_free(root: Path) -> None:
    """Check that ``root`` can be the directory of a table or a search."""
    for file, whose in (
        (CONFIG_FILE, "belongs to a single run"),
        (LAYERS_FILE, "has measured layers"),
    ):
        if (root / file).exists():
            raise InputError(f"{root} {whose}: choose another --directory")


def _without_end(cells: Cells, names: Iterable[str] | None = None) -> list[str]:
    names = cells.names if names is None else names
    return [name for name in names if read_ended(cells.root / name) is None]


def _carry_out(
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
    left = _without_end(cells, names)
    given_up = [name for name in left if is_given_up(cells.root / name)]
    console = Console(highlight=False, file=sys.stdout)  # whoever replaces that later
    view, status = View(console), DirectoryReader(cells.root)

    def say(text: str) -> None:
        console.print(text, soft_wrap=True)

    def show() -> None:
        with suppress(InputError):  # an unreadable file is no reason to stop a training
            view.update(status.read)

    executor, where = options.executor(cells.root, base, view.note)
    at_a_time = min(len(executor.places()), max(1, len(left)))
    done = f"{len(names)} runs, {len(names) - len(left)} done before"
    say(f"{cells.title} in {cells.root}: {done}, {at_a_time} at a time on {where}")
    waiting = [name for name in left if name not in given_up]
    received = None
    try:
        if waiting:
            driver = Driver(cells, executor, waiting, options, note=view.note, show=show)
            with view:
                received = driver.run()
            given_up += driver.given_up
        else:
            executor.close()
    finally:
        print_report = report(cells.root)
    print_report()
    if received is not None:
        say("stopped; the same command continues from here")
        return 128 + received
    if given_up:
        say(f"{len(given_up)} given up: run … --retry-failed tries them again")
    return 1 if given_up else 0
