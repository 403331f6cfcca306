"""The commands ``run`` and ``search``: from their arguments to a report."""

from __future__ import annotations

import sys
from collections.abc import Callable, Collection
from contextlib import suppress
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path

from rich.console import Console

from ablations.files import CONFIRM, LAYERS_FILE
from ablations.report.report import write_report
from ablations.report.write import print_page
from ablations.runs.attempts import clear_failures, is_given_up, read_ended
from ablations.runs.cells import Cells
from ablations.runs.driver import Driver
from ablations.runs.executor import Executor, Job, Place
from ablations.runs.local import LocalExecutor
from ablations.runs.lock import WHOLE, Shard, lock_runs
from ablations.runs.places import find_places
from ablations.runs.study import Study
from ablations.search.cells import SearchCells
from ablations.search.claim import claim_search, settle_search
from ablations.search.confirm import plan_confirmation
from ablations.search.rungs import Pruner, describe_rungs
from ablations.search.search import Sampler, is_search, load_search, prepare_search
from ablations.search.search_report import write_search_report
from ablations.search.trials import read_trials, refuse_hopeless, write_best
from ablations.status.from_directory import DirectoryReader
from ablations.status.view import View
from ablations.tables.cells import TableCells
from ablations.tables.collect import collect
from ablations.tables.find import find_scale, load_table, parse_seeds, select_rows
from ablations.tables.plan import claim_plan, make_plan, settle_plan
from ablations.tracking.table_run import track_table_run
from experiments.records.experiment import CONFIG_FILE, Experiment, Log
from transformer.config import Config, Precision
from transformer.errors import InputError

STOPPED = "stopped; the same command continues from here"


@dataclass(frozen=True, kw_only=True, slots=True)
class Options:
    """Where and how runs are carried out: on a Ray cluster or here, at how many places, every
    n-th run alone, in how many parts a step, how often a failed one again, and what they log to.
    """

    ray: str | None = None
    shard: Shard = WHOLE
    workers: int | None = None
    devices_per_trial: int = 1
    trials_per_device: int = 1
    accumulate: int = 1
    retries: int = 2
    log: Log = "wandb"

    def __post_init__(self) -> None:
        if self.retries < 0:
            raise InputError(f"--retries is {self.retries}, but must be at least 0")
        if self.accumulate < 1:
            raise InputError(f"--accumulate is {self.accumulate}, but must be at least 1")
        if self.ray is not None and self.workers is not None:
            raise InputError("--workers is for this machine: a Ray cluster has its own resources")
        if self.ray is not None and self.devices_per_trial > 1 < self.trials_per_device:
            raise InputError(
                "on a Ray cluster runs share a GPU (--trials-per-device) or have several "
                "(--devices-per-trial), but not both"
            )

    def check(self, base: Config) -> None:
        """Check that there is room for runs like ``base``, before a directory is made.

        Raises:
            InputError: if this machine has none, or Ray is not installed.
        """
        if self.ray is None:
            self.places(base)
        elif find_spec("ray") is None:
            raise InputError("--ray needs Ray: pip install 'attention-is-all-you-need[ray]'")

    def places(self, base: Config) -> tuple[Place, ...]:
        """The places of this machine for runs like ``base``.

        Raises:
            InputError: if it cannot have them.
        """
        return find_places(
            self.workers,
            devices_per_trial=self.devices_per_trial,
            trials_per_device=self.trials_per_device,
            threads=base.training.threads or 1,
        )


def run_table(
    table: str,
    scale: str,
    *,
    seeds: str,
    rows: str | None,
    directory: Path | None,
    retry_failed: bool,
    options: Options,
    earlier: Path | None = None,
    precision: Precision | None = None,
    threads: int | None = None,
) -> int:
    """Train what the table lacks and report it; the exit code.

    Raises:
        InputError: for arguments that cannot be used.
    """
    declared = load_table(table)
    plan = make_plan(
        declared,
        find_scale(declared, scale),
        select_rows(declared, rows),
        parse_seeds(seeds),
        precision=precision,
        threads=threads,
    )
    root = directory or Path("runs") / f"{plan.table}-{plan.scale}"
    wanted = {str(cell) for cell in plan.cells}
    _check_free(root)
    if is_search(root):
        raise InputError(f"{root} belongs to a search: choose another --directory")
    plan = settle_plan(earlier or root, plan)
    options.check(plan.base)
    with lock_runs(root, options.shard):
        if earlier is not None:
            print(f"{len(collect(earlier, root))} finished runs taken from {earlier}")
        plan = claim_plan(root, plan)
        if retry_failed:
            for name in wanted:
                clear_failures(root / name)
        cells = TableCells(root)
        before = _count_ended(cells)
        code = _carry_out(cells, plan.base, options, wanted, _report_table)
    if options.log == "wandb" and _count_ended(cells) != before:
        track_table_run(root)
    return code


def run_search(
    space: str,
    scale: str,
    *,
    trials: int,
    seed: int,
    directory: Path | None,
    retry_failed: bool,
    options: Options,
    sampler: Sampler | None = None,
    pruner: Pruner | None = None,
    confirm: int | None = None,
    precision: Precision | None = None,
    threads: int | None = None,
) -> int:
    """Carry out the trials that a search lacks and report it; the exit code.

    Args:
        confirm: how many of the best trials to train again with other seeds, next to the base

    Raises:
        InputError: for arguments that cannot be used.
    """
    search = prepare_search(
        space, scale, trials=trials, seed=seed, precision=precision, threads=threads
    )
    root = directory or Path("runs") / search.name
    _check_free(root)
    search = settle_search(root, search, sampler=sampler, pruner=pruner)
    options.check(search.base)
    with lock_runs(root, options.shard):
        claim_search(root, search)
        print(describe_rungs(search.pruner, search.base, search.parameters))
        cells = SearchCells(root)
        if retry_failed:
            for name in cells.names:
                clear_failures(root / name)
        code = _carry_out(cells, search.base, options, None, _report_search)
        if confirm is None or code:
            return code
        plan = plan_confirmation(search, read_trials(search, root), confirm, root)
        claim_plan(root / CONFIRM, plan)
        confirmed = TableCells(root / CONFIRM)
        return _carry_out(confirmed, search.base, options, None, lambda _: _report_confirmed(root))


# Writes the report of a directory, and returns what prints it.
Report = Callable[[Path], Callable[[], None]]


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
    write_report(root / CONFIRM)
    return _report_search(root)


def _check_free(root: Path) -> None:
    """Check that ``root`` can be the directory of a table or a search.

    Raises:
        InputError: if it is that of a single run or of measured layers.
    """
    if (root / CONFIG_FILE).exists():
        raise InputError(f"{root} belongs to a single run: choose another --directory")
    if (root / LAYERS_FILE).exists():
        raise InputError(f"{root} has measured layers: choose another --directory")


def _carry_out(
    cells: Cells, base: Config, options: Options, wanted: Collection[str] | None, report: Report
) -> int:
    """Carry out those of the ``cells`` that are ``wanted`` (None: all), and report.

    Returns:
        The exit code: 1 if some runs are given up, 128 plus the signal that ended it.
    """
    root = cells.root
    shard = options.shard
    names = [name for name in cells.names if wanted is None or name in wanted]
    names = names[shard.number - 1 :: shard.count]
    left = [name for name in names if read_ended(root / name) is None]
    given_up = [name for name in left if is_given_up(root / name)]
    console = Console(highlight=False, file=sys.stdout)  # whoever replaces that later
    view = View(console)
    received = None
    executor, where = _find_executor(root, base, options, view.note)
    at_a_time = min(len(executor.places()), max(1, len(left)))
    console.print(
        f"{cells.title} in {root}: {len(names)} runs, {len(names) - len(left)} done before, "
        f"{at_a_time} at a time on {where}",
        soft_wrap=True,
    )
    try:
        if len(left) > len(given_up):
            driver = _make_driver(cells, executor, options, view, left, given_up)
            with view:
                received = driver.run()
            given_up += driver.given_up
        else:
            executor.close()
    finally:
        print_report = report(root)
    print_report()
    if received is not None:
        console.print(STOPPED, soft_wrap=True)
        return 128 + received
    if given_up:
        console.print(
            f"{len(given_up)} given up: run … --retry-failed tries them again", soft_wrap=True
        )
    return 1 if given_up else 0


def _find_executor(
    root: Path, base: Config, options: Options, note: Callable[[str], None]
) -> tuple[Executor, str]:
    """Where the runs are carried out, and how to say it."""
    if options.ray is not None:
        from ablations.runs.on_ray import Needs, RayExecutor  # which imports ray, an extra

        needs = Needs(
            devices=options.devices_per_trial,
            sharing=options.trials_per_device,
            threads=base.training.threads or 1,
        )
        executor = RayExecutor(options.ray, root, needs, note)
        where = f", whose dashboard is at {executor.dashboard}" if executor.dashboard else ""
        return executor, f"the Ray cluster{where}"
    places = options.places(base)
    devices = places[0].devices
    gpus = f"{len(devices)} GPUs each" if len(devices) > 1 else "the GPU"
    return LocalExecutor(places), gpus if devices else "the CPU"


def _make_driver(
    cells: Cells,
    executor: Executor,
    options: Options,
    view: View,
    left: Collection[str],
    given_up: Collection[str],
) -> Driver:
    status = DirectoryReader(cells.root)

    def make_job(name: str, experiment: Experiment) -> Job:
        return Job(
            root=cells.root.absolute(),
            name=name,
            experiment=experiment,
            retries=options.retries,
            accumulate=options.accumulate,
            log=options.log,
            may_diverge=cells.is_search,
        )

    def show() -> None:
        with suppress(InputError):  # an unreadable file is no reason to stop a training
            view.update(status.read)

    return Driver(
        cells,
        Study(cells, in_memory=options.shard.count > 1),
        executor,
        [name for name in left if name not in given_up],
        make_job,
        note=view.note,
        show=show,
    )


def _count_ended(cells: Cells) -> int:
    return sum(read_ended(cells.root / name) is not None for name in cells.names)
