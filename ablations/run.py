"""Carry out ``run`` and ``search``."""

from __future__ import annotations

import math
import signal
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

from rich.console import Console

from ablations.files import CONFIRM, PLAN_FILE, REPLACED, SEARCH_FILE, TUNING, check_free
from ablations.folder import SearchFolder, TableFolder
from ablations.folder.table import tuned_plan
from ablations.folder.tuning import choose, described, plan_candidates, still_to_try
from ablations.report.confirm import check_confirmable, describe_confirmation
from ablations.report.layout import print_page
from ablations.report.report import write_report
from ablations.report.search import write_search_report
from ablations.runs.attempts import clear_failures
from ablations.runs.driver import Driver, Executor
from ablations.runs.lock import Shard, lock_runs
from ablations.runs.options import Options
from ablations.runs.reuse import Earlier, set_aside_stale, take_renamed
from ablations.runs.sampler import check_feasible
from ablations.runs.search_runs import SearchRuns
from ablations.runs.study import PlannedRuns
from ablations.runs.supervise import LocalExecutor
from ablations.runs.table_runs import TableRuns
from ablations.search.search import SearchOptions, claim_search, make_search, settle_search
from ablations.search.space import load_space
from ablations.search.trials import check_any_finite, plan_confirmation
from ablations.status.status import DirectoryReader
from ablations.status.view import View
from ablations.tables.find import Selection, load_table, parse_seeds, scale_on, select_rows
from ablations.tables.plan import Plan
from ablations.tables.plan_file import (
    claim_plan,
    load_plan,
    refresh_plan,
    settle_plan,
    share_arithmetic,
    with_rows_there,
)
from ablations.tables.warn import stale_rows, warnings_of
from ablations.tracking.push import track_table_run
from experiments.devices import check_parts
from experiments.records.progress import RunState
from transformer.config import Config, override
from transformer.errors import InputError, require
from transformer.files import within
from transformer.formats import counted
from transformer.terminal import say


def run_table(
    table: str,
    selection: Selection,
    earlier: Path | None,
    again: str | None,
    options: Options,
    text: str | None = None,
) -> int:
    """Train a table's missing runs and report them; return the exit code.

    Args:
        earlier: the directory to take finished runs from
        again: rows whose stale runs are trained again, such as ``base,A-h1``
        text: the user's own text to train on, as ``files:FOLDER``
    """
    declared = load_table(table)
    scale = scale_on(declared, selection.scale, text)
    plan, root = selection.plan(declared, scale)
    plan = replace(plan, base=_with_options(plan.base, options))
    rows = [] if again is None else [row.name for row in select_rows(declared, again)]
    check_free(root, PLAN_FILE)
    if scale.note:
        say(scale.note)
    if plan.tune is None:
        return _run_plan(plan, root, earlier, rows, options)
    return _run_tuned(plan, root, earlier, rows, options)


def _run_tuned(
    plan: Plan, root: Path, earlier: Path | None, again: Sequence[str], options: Options
) -> int:
    """Try the learning rates of a tuned table, then train each row at the one chosen for it."""
    tuning = within(root, TUNING)
    is_tuned = earlier is not None and (earlier / TUNING / PLAN_FILE).exists()
    # The runs of a table that is not tuned serve as those at a factor of 1.
    tried = earlier / TUNING if earlier is not None and is_tuned else earlier
    code, more = 0, set[str]()
    while True:
        candidates = plan_candidates(plan, more)
        names = [row.name for row in candidates.rows if row.name.rpartition("-x")[0] in again]
        code = max(code, _run_plan(candidates, tuning, tried, names, options))
        if code > 1:
            return code
        chosen = choose(plan, TableFolder(tuning).runs())
        if still_to_try(chosen) <= more:
            break
        more |= still_to_try(chosen)
    for line in described(chosen):
        say(line)
    if waiting := [row.name for row in plan.rows if row.seeds and row.name not in chosen]:
        say(f"not trained yet, as their learning rates were not all tried: {', '.join(waiting)}")
        code = max(code, 1)
    final = tuned_plan(plan, root)
    if not final.cells:
        return code
    finished = earlier if is_tuned else tuning
    return max(code, _run_plan(final, root, finished, again, options, all_seeds=False))


def _run_plan(
    plan: Plan,
    root: Path,
    earlier: Path | None,
    rows: Sequence[str],
    options: Options,
    *,
    all_seeds: bool = True,
) -> int:
    """Train a plan's missing runs, and the stale ones of ``rows``, and report them; return the exit
    code. With ``all_seeds``, earlier runs with other seeds than the plan's are taken too.
    """
    names = {str(cell) for cell in plan.cells}
    settled, runs = settle_plan(root, plan), None
    if earlier is not None:
        plan = replace(plan, base=share_arithmetic(plan.base, load_plan(earlier).base))
        settled = settle_plan(root, plan)
        runs = Earlier(earlier, settled, all_seeds=all_seeds)
        plan = runs.add_seeds(plan)
    # This may raise an error, so it comes before a directory is made.
    executor = find_executor(options, settled.base)
    with lock_runs(root, options.shard):
        # Settled again: another shard may have been first, on another kind of machine.
        claim_plan(root, plan)
        _reuse(root, rows, runs)
        planned = TableRuns(root)
        ended = [run for run in planned.folder.look() if run.has_ended]
        for text in warnings_of(planned.plan, [x.result.device for x in ended if x.result]):
            say(f"warning: {text}")
        in_order = [name for name in planned.names if name in names or name.split("/")[0] in rows]
        ours = list(_of_shard(planned, in_order, options.shard))
        if scored := planned.score_finished(ours):
            print(f"{counted(scored, 'finished run')} scored by the table's own measures")
        code = _carry_out(planned, ours, executor, options, _report_table)
    left_before = len(planned.names) - len(ended)
    if options.log == "wandb" and len(planned.folder.left) != left_before:
        track_table_run(root)
    return code


def _reuse(root: Path, again: Sequence[str], earlier: Earlier | None) -> None:
    """Take the runs that exist already, and set aside those of the rows to train ``again``."""
    if renamed := take_renamed(root):
        say(f"{counted(renamed, 'run')} taken from rows that have been renamed")
    if earlier is not None:
        say(f"{counted(len(earlier.copy(root)), 'finished run')} taken from {earlier.path}")
    if again:
        aside = set_aside_stale(root, again)
        say(f"{counted(len(aside), 'stale run')} moved to {root / REPLACED}, to be trained again")


def run_search(
    space: str,
    asked: SearchOptions,
    *,
    confirm: int | None,
    directory: Path | None,
    options: Options,
    text: str | None = None,
) -> int:
    """Carry out a search's missing trials and report it; return the exit code.

    Args:
        text: the user's own text to train on, as ``files:FOLDER``
        confirm: how many of the best trials to train again with other seeds, next to the base
    """
    declared = load_space(space)
    scale = scale_on(declared, asked.scale or None, text)
    search = make_search(declared, scale, asked)
    search = replace(search, base=_with_options(search.base, options))
    check_feasible(search)
    root = directory or Path("runs") / search.name
    check_free(root, SEARCH_FILE)
    search = settle_search(root, search)
    if confirm is not None and confirm > search.trials:
        raise InputError(f"--confirm is {confirm}, but there are {search.trials} trials in all")
    executor = find_executor(options, search.base)
    if scale.note:
        say(scale.note)
    with lock_runs(root, options.shard):
        claim_search(root, search)
        say(search.describe_rungs())
        planned = SearchRuns(root)
        code = _carry_out(planned, planned.names, executor, options, _report_search)
        trials = planned.folder.trials()
        check_any_finite(search, trials)
        if confirm is None or code > 1:
            return code
        confirming = within(root, CONFIRM)
        claim_plan(confirming, plan_confirmation(search, trials, confirm, root))
        again, executor = TableRuns(confirming), find_executor(options, search.base)
        code = max(code, _carry_out(again, again.names, executor, options, _report_table))
        print_page(_report_search(root), root)
        return code


def run_confirmation(
    committed: Path, row: str, seeds: str, into: Path | None, options: Options
) -> int:
    """Train a row of committed results again, and say how it differs; return the exit code.

    Args:
        seeds: the seeds to train, such as 11-13
        into: the directory for the new runs
    """
    if not committed.exists():
        raise InputError(
            f"{committed} does not exist: committed results are in experiments/results of a clone, "
            "and not in an installed package"
        )
    there = TableFolder(committed)
    check_confirmable(there, row)
    root = into or Path("runs") / f"confirm-{there.plan.name}"
    check_free(root, PLAN_FILE)
    if root.resolve().is_relative_to(committed.resolve()):
        where = "itself" if root.resolve() == committed.resolve() else f"inside {committed}"
        raise InputError(f"--into is {root} {where}: give the directory of other runs")
    chosen = replace(there.plan.row(row), seeds=parse_seeds(seeds))
    plan = replace(there.plan, rows=(chosen,), base=_with_options(there.plan.base, options))
    names = [str(cell) for cell in plan.cells]
    plan = with_rows_there(root, plan)  # it may confirm other rows too
    settled = settle_plan(root, plan)
    executor = find_executor(options, settled.base)
    with lock_runs(root, options.shard):
        claim_plan(root, plan)
        code = _carry_out(TableRuns(root), names, executor, options, _report_table)
    say(*describe_confirmation(there, TableFolder(root), row))
    return code


def _with_options(base: Config, options: Options) -> Config:
    """``base`` with the precision, threads and compilation that the command gives."""
    wanted = {name: getattr(options, name) for name in ("precision", "threads", "compile")}
    return override(base, **{name: x for name, x in wanted.items() if x is not None})


def _report_table(root: Path) -> str:
    refresh_plan(root)  # records edited classes as this report shows them
    return write_report(TableFolder(root))


def _report_search(root: Path) -> str:
    return write_search_report(SearchFolder(root))


def _carry_out(
    planned: PlannedRuns,
    names: Sequence[str],
    executor: Executor,
    options: Options,
    report: Callable[[Path], str],
) -> int:
    """Carry out the unfinished runs among ``names``, and write and print the ``report``.

    Returns:
        The exit code: 1 if some runs were given up, 128 plus the signal that ended it.
    """
    try:
        received, given_up = train(planned, names, executor, options)
    finally:
        text = report(planned.root)
    print_page(text, planned.root)
    if received is not None:
        say("stopped; the same command continues from here")
        return 128 + received
    if given_up:
        say(
            f"{len(given_up)} given up: once a row is fixed, the same command trains it again; "
            "--retry-failed tries them as they are"
        )
    return 1 if given_up else 0


def train(
    planned: PlannedRuns,
    names: Sequence[str],
    executor: Executor,
    options: Options,
    *,
    deadline: float = math.inf,
) -> tuple[signal.Signals | None, list[str]]:
    """Carry out the unfinished runs among ``names``, and show their progress.

    Args:
        deadline: when the runs end after a checkpoint, by time.monotonic()

    Returns:
        The signal that ended it early, if one did, and the runs that were given up.
    """
    if options.retry_failed:
        for name in names:
            clear_failures(planned.root / name)
    runs = {run.name: run for run in planned.folder.look()}
    left = [name for name in names if not runs[name].has_ended]
    given_up = [name for name in left if runs[name].is_given_up]
    console = Console(highlight=False, file=sys.stdout)  # this one, even if it is redirected later
    view, status = View(console), DirectoryReader(planned.root)

    def show() -> None:
        with suppress(InputError):  # an unreadable file must not stop a training
            view.update(status.read)

    for text in stale_rows(runs.values()):
        say(f"warning: {text}")
    at_a_time = min(len(executor.places()), max(1, len(left)))
    stale = sum(runs[name].state == RunState.STALE for name in names)
    done = f"{len(names) - len(left) - stale} of {len(names)} already done"
    say(f"{planned.title} in {planned.root}: {done}, {at_a_time} at a time on {executor.where}")
    waiting = [name for name in left if name not in given_up]
    driver = Driver(
        planned, executor, waiting, options, deadline=deadline, note=view.note, show=show
    )
    with view:
        received = driver.run()
    return received, [*given_up, *driver.given_up]


def _of_shard(planned: PlannedRuns, names: Iterable[str], shard: Shard) -> Iterator[str]:
    """The runs of a shard; runs that share a training are always in the same one."""
    groups: dict[frozenset[str], list[str]] = {}
    for name in names:
        groups.setdefault(frozenset({name, *planned.shares(name)}), []).append(name)
    for group in list(groups.values())[shard.number - 1 :: shard.count]:
        yield from group


def find_executor(options: Options, base: Config) -> Executor:
    """Where runs like ``base`` are carried out; an InputError if there is no room for one."""
    check_parts(options.accumulate, options.devices_per_trial, base.data.tokens_per_batch)
    threads = base.training.threads or 1
    if options.ray is None:
        return LocalExecutor(options.here(threads))
    require("ray", extra="ray")
    from ablations.runs.on_ray import RayExecutor  # imports ray, an optional dependency

    return RayExecutor(options.ray, options, threads)
