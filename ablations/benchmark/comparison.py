"""A fleet and a single process at the same table, side by side, from their start to their end."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from pathlib import Path

from sqlalchemy.engine import URL

from ablations.benchmark.arm import Arm, Place, places
from ablations.benchmark.figures import Overhead, overhead
from ablations.benchmark.reference import TIMES_FILE
from ablations.benchmark.timeline import Timeline
from ablations.fleet.interrupt import Interrupt
from ablations.fleet.storage import URL_VARIABLE
from ablations.plan import Plan, claim_plan
from experiments.files import read_json
from experiments.results import Result, load_result
from transformer.progress import show_progress

_POLL_SECONDS = 0.02


class Interrupted(Exception):
    """The signal ``number`` asked for an end."""

    def __init__(self, number: int) -> None:
        super().__init__(number)
        self.number = number


class Comparison:
    """Both ways to carry out ``plan``, with all their files in ``folder``; the fleet's study is
    in the storage ``url``, or for None in ``folder``, too.
    """

    def __init__(self, plan: Plan, folder: Path, url: URL | None) -> None:
        self._folder, self._url = folder, url
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
            for group in [ways] if together else [[way] for way in ways]:
                _carry_out(group, look)
        return self._compare()

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
        environment = (
            {} if self._url is None
            else {URL_VARIABLE: self._url.render_as_string(hide_password=False)}
        )  # fmt: skip
        log = self._folder / "fleet.txt"
        return Arm("the fleet", "ablations", arguments, place, environment, log)

    def _start_reference(self, place: Place) -> Arm:
        module, arguments = "ablations.benchmark.reference", [str(self._roots[1])]
        log = self._folder / "reference.txt"
        return Arm("the process without a fleet", module, arguments, place, {}, log)


def _carry_out(starts: Sequence[Callable[[], Arm]], look: Callable[[], None]) -> None:
    """Start all, and look until they have ended; none is left if something goes wrong."""
    with ExitStack() as stack:
        arms: list[Arm] = []
        for start in starts:
            arms.append(start())
            stack.callback(arms[-1].end)
        while arms:
            look()
            time.sleep(_POLL_SECONDS)
            arms = [arm for arm in arms if not arm.is_over()]
        look()
