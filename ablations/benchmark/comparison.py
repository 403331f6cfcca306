"""A fleet and a single process at the same table, side by side, from their start to their end."""

from __future__ import annotations

from pathlib import Path

from ablations.benchmark.arm import Arm, Place, carry_out, places
from ablations.benchmark.figures import Overhead, overhead
from ablations.benchmark.reference import TIMES_FILE
from ablations.benchmark.timeline import Timeline
from ablations.runner.attempts import locate
from ablations.runner.interrupt import Interrupt
from ablations.runner.storage import URL_VARIABLE
from ablations.tables.plan import Plan, claim_plan
from experiments.run.attempt import read_attempt
from experiments.run.files import read_json
from experiments.run.results import Result, load_result
from transformer.progress import show_progress


class Interrupted(Exception):
    """The signal ``number`` asked for an end."""

    def __init__(self, number: int) -> None:
        super().__init__(number)
        self.number = number


class Comparison:
    """Both ways to carry out ``plan``, with all their files in ``folder``; the fleet's study is
    in the database at ``storage``, or for None in ``folder``, too.
    """

    def __init__(self, plan: Plan, folder: Path, storage: str | None) -> None:
        self._folder, self._storage = folder, storage
        self._roots = folder / "fleet", folder / "reference"
        self._plan, _ = (claim_plan(root, plan) for root in self._roots)
        names = [str(cell) for cell in plan.cells]
        self._fleet, self._reference = (Timeline(root, names) for root in self._roots)

    @property
    def study(self) -> str:
        """The name of the fleet's study."""
        return self._plan.study

    def run(self) -> Overhead:
        """Carry them out, at once where there are two cores, and compare.

        Raises:
            ChildProcessError: if one of them fails.
            Interrupted: by a signal; nothing runs any more then.
        """
        first, second = places()
        runs = len(self._plan.cells)
        with (
            Interrupt() as interrupt,
            show_progress("training with the fleet and without", 2 * runs) as update,
        ):

            def look() -> None:
                for timeline in (self._fleet, self._reference):
                    timeline.look()
                update(self._fleet.done + self._reference.done)
                if interrupt.first is not None:
                    raise Interrupted(interrupt.first)

            ways = [lambda: self._start_fleet(first), lambda: self._start_reference(second)]
            together = first.core != second.core
            try:
                for group in [ways] if together else [[way] for way in ways]:
                    carry_out(group, look)
            except ChildProcessError as error:
                raise self._explained(error) from error
        return self._compare()

    def _explained(self, error: ChildProcessError) -> ChildProcessError:
        """With the reason of a run of the fleet's that failed, if one did."""
        for cell in self._plan.cells:
            attempt = read_attempt(locate(cell.directory(self._roots[0])))
            if attempt is not None and attempt.failures:
                return ChildProcessError(f"{cell} failed: {attempt.failures[-1].reason}")
        return error

    def _compare(self) -> Overhead:
        times = read_json(self._roots[1] / TIMES_FILE)
        for name, marks in self._reference.marks.items():
            marks.started_at, marks.published_at = times[name]
        ours, theirs = (self._results(root) for root in self._roots)
        return overhead(self._fleet.marks, ours, self._reference.marks, theirs)

    def _results(self, root: Path) -> list[Result]:
        found = [load_result(cell.directory(root)) for cell in self._plan.cells]
        results = [result for result in found if result is not None]
        assert len(results) == len(found)  # both have ended well
        return results

    def _start_fleet(self, place: Place) -> Arm:
        arguments = ["worker", str(self._roots[0]), "--workers", "1", "--retries", "0"]
        # Not an argument: it may hold a password, and those are seen by all.
        environment = {} if self._storage is None else {URL_VARIABLE: self._storage}
        log = self._folder / "fleet.txt"
        return Arm("the fleet", "ablations", arguments, place, environment, log)

    def _start_reference(self, place: Place) -> Arm:
        module, arguments = "ablations.benchmark.reference", [str(self._roots[1])]
        log = self._folder / "reference.txt"
        return Arm("the process without a fleet", module, arguments, place, {}, log)
