"""Carry out ``run`` and ``search``."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

from ablations.carry_out import carry_out, without_end
from ablations.files import CONFIRM, LAYERS_FILE, PLAN_FILE, SEARCH_FILE
from ablations.report.report import write_report
from ablations.report.write import print_page
from ablations.runs.lock import lock_runs
from ablations.runs.options import Options
from ablations.search.cells import SearchCells, check_feasible
from ablations.search.report import write_search_report
from ablations.search.search import Settings, claim_search, make_search, settle_search
from ablations.search.space import load_space
from ablations.search.trials import plan_confirmation, read_trials
from ablations.tables.cells import TableCells
from ablations.tables.collect import collect
from ablations.tables.find import Wanted, find_scale, load_table
from ablations.tables.plan import claim_plan, settle_plan
from ablations.tracking.table_run import track_table_run
from experiments.records.experiment import CONFIG_FILE
from transformer.errors import InputError


def run_table(table: str, wanted: Wanted, earlier: Path | None, options: Options) -> int:
    """Train what the table lacks and report it; the exit code.

    Args:
        earlier: the directory whose finished runs to take
    """
    plan, root = wanted.plan(load_table(table))
    names = {str(cell) for cell in plan.cells}
    _check_free(root, PLAN_FILE)
    settled = settle_plan(earlier or root, plan, options.precision, options.threads)
    plan = replace(plan, base=settled.base)
    options.check(plan.base)
    with lock_runs(root, options.shard):
        if earlier is not None:
            print(f"{len(collect(earlier, root))} finished runs taken from {earlier}")
        claim_plan(root, plan)
        cells = TableCells(root)
        before = len(without_end(cells, cells.names))
        in_order = [name for name in cells.names if name in names]
        code = carry_out(cells, in_order, plan.base, options, _report_table)
    if options.log == "wandb" and len(without_end(cells, cells.names)) != before:
        track_table_run(root)
    return code


def run_search(
    space: str, asked: Settings, *, confirm: int | None, directory: Path | None, options: Options
) -> int:
    """Carry out the trials that a search lacks and report it; the exit code.

    Args:
        confirm: how many of the best trials to train again with other seeds, next to the base
    """
    declared = load_space(space)
    search = make_search(declared, find_scale(declared, asked.scale), asked)
    check_feasible(search)
    root = directory or Path("runs") / search.name
    _check_free(root, SEARCH_FILE)
    search = settle_search(root, search, options.precision, options.threads)
    options.check(search.base)
    with lock_runs(root, options.shard):
        claim_search(root, search)
        print(search.describe_rungs())
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
    text = write_search_report(root)
    return lambda: print_page(text, root)


def _report_confirmed(root: Path) -> Callable[[], None]:
    write_report(root)
    return _report_search(root.parent)


def _check_free(root: Path, own: str) -> None:
    """Check that ``root`` is not the directory of something else than its ``own`` file tells."""
    for file in (CONFIG_FILE, LAYERS_FILE, PLAN_FILE, SEARCH_FILE):
        if file != own and (root / file).exists():
            raise InputError(f"{root} has other runs ({file}): choose another --directory")
