"""The commands ``run``, ``worker`` and ``search``: from their arguments to a report."""

from __future__ import annotations

from collections.abc import Callable, Collection
from contextlib import ExitStack, suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from rich.console import Console

from ablations.files import CONFIRM, LAYERS_FILE, WORKER_FILE
from ablations.report.report import write_report
from ablations.report.write import print_page
from ablations.runner import forkserver, identity, process
from ablations.runner.attempts import clear_failures, locate
from ablations.runner.lease import Lease
from ablations.runner.machine import slots
from ablations.runner.queue import Queue
from ablations.runner.run_set import RunSet
from ablations.runner.storage import Heartbeat, open_storage, refuse_unusable
from ablations.runner.storage_url import register_storage, storage_url
from ablations.runner.sync import QueueSync
from ablations.runner.worker import Worker
from ablations.search.claim import claim_search, settle_search
from ablations.search.confirm import plan_confirmation
from ablations.search.rungs import Pruner, describe_rungs
from ablations.search.runs import SearchRuns
from ablations.search.search import Sampler, is_search, load_search, prepare_search
from ablations.search.search_report import write_search_report
from ablations.search.trials import read_trials, refuse_hopeless, write_best
from ablations.status.from_directory import DirectoryReader
from ablations.status.view import View
from ablations.tables.collect import collect
from ablations.tables.find import find_scale, load_table, parse_seeds, select_rows
from ablations.tables.plan import claim_plan, make_plan, settle_plan
from ablations.tables.runs import TableRuns
from ablations.tracking.table_run import track_table_run
from experiments.run.attempt import read_attempt
from experiments.run.experiment import CONFIG_FILE, Log
from transformer.config import Config, Precision
from transformer.errors import InputError
from transformer.files import make_directory, write_atomically

# How long the storage may block the worker, whose signals and display wait meanwhile.
_STORAGE_SECONDS = 2.0
STOPPED = "stopped; the same command continues from here"


@dataclass(frozen=True, kw_only=True, slots=True)
class Options:
    """A worker's options: its storage, its slots, into how many parts it divides a training step,
    how often it tries a failed run again, and what its runs log to.
    """

    storage: str | None = None
    workers: int | None = None
    devices_per_trial: int = 1
    trials_per_device: int = 1
    accumulate: int = 1
    retries: int = 2
    log: Log = "wandb"


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
    if is_search(root):
        raise InputError(f"{root} belongs to a search: choose another --directory")
    plan = settle_plan(earlier or root, plan)
    with Fleet(root, options, plan.base) as fleet:
        if earlier is not None:
            print(f"{len(collect(earlier, root))} finished runs taken from {earlier}")
        claim_plan(root, plan)  # only now that the storage is known to work
        if retry_failed:
            for name in wanted:
                clear_failures(root / name)
        runs = TableRuns(root)
        before = _done(runs)
        code = fleet.work(runs, wanted, _report_table)
    if options.log == "wandb" and _done(runs) != before:
        track_table_run(root)
    return code


def work_in(directory: Path, options: Options) -> int:
    """Join the workers of a directory until all its runs have ended; the exit code.

    Raises:
        InputError: if the directory is not a table's or a search's, or the storage is unusable.
    """
    if is_search(directory):
        runs, report = SearchRuns(directory), _report_search
        base = runs.search.base
    else:
        runs, report = TableRuns(directory), _report_table
        base = runs.plan.base
    with Fleet(directory, options, base) as fleet:
        return fleet.work(runs, None, report)


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
    search = settle_search(root, search, sampler=sampler, pruner=pruner)
    with Fleet(root, options, search.base) as fleet:
        claim_search(root, search)
        print(describe_rungs(search.pruner, search.base, search.parameters))
        runs = SearchRuns(root)
        if retry_failed:
            for name in runs.names:
                clear_failures(root / name)
        code = fleet.work(runs, None, _report_search)
    if confirm is None or code:
        return code
    plan = plan_confirmation(search, read_trials(search, root), confirm, root)
    with Fleet(root / CONFIRM, options, search.base) as fleet:
        claim_plan(root / CONFIRM, plan)
        return fleet.work(TableRuns(root / CONFIRM), None, lambda _: _report_confirmed(root))


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


class Fleet:
    """The workers of the directory ``root``, which this process joins while it is entered.

    ``base`` is the configuration of the base row.

    Raises:
        InputError: for options that this machine cannot meet, for the directory of a single run,
            or, when entered, for an unusable storage.
    """

    def __init__(self, root: Path, options: Options, base: Config) -> None:
        if (root / CONFIG_FILE).exists():
            raise InputError(f"{root} belongs to a single run: choose another --directory")
        if (root / LAYERS_FILE).exists():
            raise InputError(f"{root} has measured layers: choose another --directory")
        if options.retries < 0:
            raise InputError(f"--retries is {options.retries}, but must be at least 0")
        if options.accumulate < 1:
            raise InputError(f"--accumulate is {options.accumulate}, but must be at least 1")
        self._root, self._options = root, options
        self._slots = slots(
            options.workers,
            devices_per_trial=options.devices_per_trial,
            trials_per_device=options.trials_per_device,
            threads=base.training.threads or 1,
        )
        self._heartbeat = Heartbeat.from_environment()
        self._url = storage_url(options.storage, root)
        self._console = Console(highlight=False)
        self._opened = ExitStack()

    def __enter__(self) -> Fleet:
        with ExitStack() as stack:
            if self._url.get_backend_name() == "sqlite":
                make_directory(self._root)  # SQLite's file is there by default
            self._storage = stack.enter_context(open_storage(self._url, self._heartbeat))
            make_directory(self._root)
            register_storage(self._root, self._url, self._heartbeat.grace_seconds)
            write_atomically(self._root / WORKER_FILE, identity.own_name())
            self._opened = stack.pop_all()
        return self

    def __exit__(self, *_: object) -> None:
        self._opened.close()

    def work(self, runs: RunSet, wanted: Collection[str] | None, report: Report) -> int:
        """Carry out those of the ``runs`` that are ``wanted`` (None: all), and report.

        Returns:
            The exit code: 1 if some runs are given up, 128 plus the signal that ended it.
        """
        root = self._root
        names = [name for name in runs.names if wanted is None or name in wanted]
        done = sum(runs.is_done(root / name) for name in names)
        received = None
        view = View(self._console)
        worker = self._worker(runs, wanted, view)
        self._console.print(self._headline(runs, len(names), done), soft_wrap=True)
        try:
            if done < len(names):
                with view:
                    received = worker.run()
        finally:
            print_report = report(root)
        print_report()
        if received is not None:
            self._console.print(STOPPED, soft_wrap=True)
            return 128 + received
        given_up = [name for name in runs.names if _is_given_up(root / name)]
        if given_up:
            self._console.print(
                f"{len(given_up)} given up: run … --retry-failed tries them again", soft_wrap=True
            )
        return 1 if any(wanted is None or name in wanted for name in given_up) else 0

    def _worker(self, runs: RunSet, wanted: Collection[str] | None, view: View) -> Worker:
        status = DirectoryReader(self._root)
        heartbeat, name = self._heartbeat, identity.own_name()
        with refuse_unusable(self._url):
            queue = Queue(self._storage, runs, name)
            lease = Lease(self._storage.engine, runs.study, name, heartbeat.grace_seconds)
        self._storage.wait_seconds = _STORAGE_SECONDS

        def is_wanted(name: str) -> bool:
            return wanted is None or name in wanted

        def show() -> None:
            with suppress(InputError):  # an unreadable file is no reason to stop a training
                view.update(status.read)

        return Worker(
            runs,
            queue,
            QueueSync(queue, lease, heartbeat, is_wanted),
            slots=self._slots,
            start=partial(
                process.start, accumulate=self._options.accumulate, log=self._options.log
            ),
            retries=self._options.retries,
            wanted=is_wanted,
            note=view.note,
            show=show,
            prepare=forkserver.warm_up,
        )

    def _headline(self, runs: RunSet, count: int, done: int) -> str:
        slot = self._slots[0]
        gpus = f"{len(slot.devices)} GPUs each" if len(slot.devices) > 1 else "the GPU"
        return (
            f"{runs.title} in {self._root}: {count} runs, {done} done before, "
            f"{min(len(self._slots), max(1, count - done))} at a time on "
            f"{gpus if slot.devices else 'the CPU'}"
        )


def _done(runs: RunSet) -> list[str]:
    return [name for name in runs.names if runs.is_done(runs.root / name)]


def _is_given_up(stem: Path) -> bool:
    attempt = read_attempt(locate(stem))
    return attempt is not None and attempt.given_up
