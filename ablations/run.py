"""One call of ``run`` or ``worker``: from the words of the command line to a report."""

from __future__ import annotations

from collections.abc import Collection
from contextlib import ExitStack, suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from rich.console import Console

from ablations.report.report import track_report
from ablations.runner import identity, process, warm
from ablations.runner.attempts import forgive, locate
from ablations.runner.collect import collect
from ablations.runner.lease import Lease
from ablations.runner.link import Link
from ablations.runner.machine import slots
from ablations.runner.meeting import meet
from ablations.runner.queue import Queue
from ablations.runner.storage import Patience, open_storage, refusing, storage_url
from ablations.runner.work import Work
from ablations.runner.worker import Outcome, Worker
from ablations.search.runs import SearchRuns
from ablations.search.search import claim_search, is_search, prepare_search, settle_search
from ablations.status.from_directory import DirectoryReader
from ablations.status.view import View
from ablations.table_work import TableWork
from ablations.tables.find import find_scale, load_table, parse_seeds, select_rows
from ablations.tables.plan import claim_plan, make_plan, settle_plan
from experiments.run.attempt import read_attempt
from experiments.run.experiment import CONFIG_FILE
from experiments.run.files import make_directory
from transformer.config import Config, Precision
from transformer.errors import InputError

STOPPED = "stopped; the same command goes on from here"


@dataclass(frozen=True, kw_only=True, slots=True)
class Options:
    """What a worker brings: its storage, its places, in how many parts it works through a step,
    and how often it tries again.
    """

    storage: str | None = None
    workers: int | None = None
    devices_per_trial: int = 1
    trials_per_device: int = 1
    accumulate: int = 1
    retries: int = 2


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
        InputError: for anything that the user gave and that cannot be used.
    """
    declared = load_table(table)
    names = None if rows is None else [name.strip() for name in rows.split(",")]
    chosen = select_rows(declared, names)
    plan = make_plan(
        declared,
        find_scale(declared, scale),
        chosen,
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
        claim_plan(root, plan)  # not before it is known that the fleet can work
        if retry_failed:
            for name in wanted:
                forgive(root / name)
        work = TableWork(root)
        before = _done(work)
        code = fleet.work(work, wanted)
    if _done(work) != before:
        track_report(root)
    return code


def work_in(directory: Path, options: Options) -> int:
    """Join the fleet of a directory until all its cells have ended; the exit code.

    Raises:
        InputError: if the directory is not a table's, or the storage cannot be used.
    """
    if is_search(directory):
        work = SearchRuns(directory)
        base = work.search.base
    else:
        work = TableWork(directory)
        base = work.plan.base
    with Fleet(directory, options, base) as fleet:
        return fleet.work(work, None)


def run_search(
    space: str,
    scale: str,
    *,
    trials: int,
    seed: int,
    directory: Path | None,
    retry_failed: bool,
    options: Options,
    precision: Precision | None = None,
    threads: int | None = None,
) -> int:
    """Carry out the trials that a search lacks and report it; the exit code.

    Raises:
        InputError: for anything that the user gave and that cannot be used.
    """
    search = prepare_search(
        space, scale, trials=trials, seed=seed, precision=precision, threads=threads
    )
    root = directory or Path("runs") / search.name
    search = settle_search(root, search)
    with Fleet(root, options, search.base) as fleet:
        claim_search(root, search)
        work = SearchRuns(root)
        if retry_failed:
            for name in work.names:
                forgive(root / name)
        return fleet.work(work, None)


class Fleet:
    """The fleet of the directory ``root``, as this process joins it while it is entered; ``base``
    is its base row's configuration.

    Raises:
        InputError: for options that this machine cannot meet, a directory that is a single run's,
            or, when it is entered, a storage that cannot be used.
    """

    def __init__(self, root: Path, options: Options, base: Config) -> None:
        if (root / CONFIG_FILE).exists():
            raise InputError(f"{root} belongs to a single run: choose another --directory")
        if options.retries < 0:
            raise InputError(f"--retries is {options.retries}, but must be at least 0")
        if options.accumulate < 1:
            raise InputError(f"--accumulate is {options.accumulate}, but must be at least 1")
        self._root, self._options = root, options
        self._places = slots(
            options.workers,
            devices_per_trial=options.devices_per_trial,
            trials_per_device=options.trials_per_device,
            threads=base.training.threads or 1,
        )
        self._patience = Patience.of_environment()
        self._url = storage_url(options.storage, root)
        self._console = Console(highlight=False)
        self._opened = ExitStack()

    def __enter__(self) -> Fleet:
        with ExitStack() as stack:
            if self._url.get_backend_name() == "sqlite":
                make_directory(self._root)  # where its file is, unless another one was given
            self._storage = stack.enter_context(open_storage(self._url, self._patience))
            make_directory(self._root)
            meet(self._root, self._url, self._patience)
            self._opened = stack.pop_all()
        return self

    def __exit__(self, *_: object) -> None:
        self._opened.close()

    def work(self, work: Work, wanted: Collection[str] | None) -> int:
        """Work on those cells of ``work`` that are ``wanted``, all for None, and report; the exit
        code: 1 if some are given up, 128 and the number of a signal that ended it.
        """
        root = self._root
        names = [name for name in work.names if wanted is None or name in wanted]
        done = sum(work.is_done(root / name) for name in names)
        outcome = Outcome()
        view = View(self._console)
        worker = self._worker(work, wanted, view)
        self._console.print(self._headline(work, len(names), done), soft_wrap=True)
        try:
            if done < len(names):
                warm.warm_up()
                with view:
                    outcome = worker.run()
        finally:
            work.write_report()
        work.announce()
        if outcome.signal is not None:
            self._console.print(STOPPED, soft_wrap=True)
            return 128 + outcome.signal
        given_up = [name for name in work.names if _is_given_up(root / name)]
        if given_up:
            self._console.print(
                f"{len(given_up)} given up: run … --retry-failed takes them up", soft_wrap=True
            )
        return 1 if any(wanted is None or name in wanted for name in given_up) else 0

    def _worker(self, work: Work, wanted: Collection[str] | None, view: View) -> Worker:
        status = DirectoryReader(self._root)
        patience, name = self._patience, identity.own_name()
        with refusing(self._url):
            queue = Queue(self._storage, work, name)
            lease = Lease(self._storage.engine, work.study, name, patience.grace_seconds)

        def is_wanted(name: str) -> bool:
            return wanted is None or name in wanted

        return Worker(
            work,
            queue,
            Link(queue, lease, patience, is_wanted),
            slots=self._places,
            start=partial(process.start, accumulate=self._options.accumulate),
            retries=self._options.retries,
            wanted=is_wanted,
            note=view.note,
            show=partial(_show, view, status),
        )

    def _headline(self, work: Work, count: int, done: int) -> str:
        place = self._places[0]
        what = f"{len(place.devices)} GPUs each" if len(place.devices) > 1 else "the GPU"
        return (
            f"{work.title} in {self._root}: {count} runs, {done} done before, "
            f"{min(len(self._places), max(1, count - done))} at a time on "
            f"{what if place.devices else 'the CPU'}"
        )


def _done(work: Work) -> list[str]:
    return [name for name in work.names if work.is_done(work.root / name)]


def _show(view: View, status: DirectoryReader) -> None:
    with suppress(InputError):  # a file that cannot be read is no reason to stop a training
        view.update(status.read)


def _is_given_up(stem: Path) -> bool:
    attempt = read_attempt(locate(stem))
    return attempt is not None and attempt.given_up
