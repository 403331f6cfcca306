"""Carry out ``run`` and ``search``."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

from ablations.carry_out import carry_out, without_end
from ablations.files import CONFIRM, LAYERS_FILE
from ablations.report.report import write_report
from ablations.report.write import print_page
from ablations.runs.lock import lock_runs
from ablations.runs.options import Options
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
from ablations.tables.cells import TableCells
from ablations.tables.collect import collect
from ablations.tables.find import find_scale, load_table, parse_seeds, select_rows
from ablations.tables.plan import claim_plan, make_plan, settle_plan
from ablations.tracking.table_run import track_table_run
from experiments.records.experiment import CONFIG_FILE
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
        before = len(without_end(cells, cells.names))
        code = carry_out(cells, names, plan.base, options, _report_table)
    if options.log == "wandb" and len(without_end(cells, cells.names)) != before:
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
        code = carry_out(cells, cells.names, search.base, options, _report_search)
        if confirm is None or code:
            return code
        plan = plan_confirmation(search, read_trials(search, root), confirm, root)
        claim_plan(root / CONFIRM, plan)
        again = TableCells(root / CONFIRM)
        return carry_out(again, again.names, search.base, options, _report_confirmed)


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
