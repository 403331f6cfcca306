"""The directory of proposals, with its plan and its runs."""

from __future__ import annotations

import math
import signal
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from statistics import fmean

import experiments
from ablations.costs.speed import until_the_last
from ablations.files import PLAN_FILE
from ablations.proposals.ledger import BASE_ROW, Ledger
from ablations.proposals.read import on_base, trust_copies
from ablations.proposals.scores import Scores, read_scores
from ablations.run import find_executor, train
from ablations.runs.options import Options
from ablations.runs.reuse import Earlier
from ablations.runs.table_runs import TableRuns
from ablations.tables.decoding import TABLE as DECODING
from ablations.tables.find import find_scale
from ablations.tables.plan import PlannedRow, make_plan
from ablations.tables.plan_file import (
    claim_plan,
    load_plan,
    settle_plan,
    share_arithmetic,
    with_rows_there,
)
from ablations.tables.table import Cell, Row, Table, row
from ablations.tables.table3 import BASE
from experiments.records.ownership import identity
from experiments.records.run import Run
from transformer.config import OPTIONS_OF, Config, override
from transformer.errors import InputError
from transformer.formats import counted, duration
from transformer.variant import class_name, split_name

BASE_SEEDS = tuple(range(1, 11))
# Where noise-SCALE has committed runs of the base; an installed package does not have it.
RESULTS = Path(experiments.__file__).parent / "results"
_SEEDS, _SEEDS_AT = 2, {"quick": 4}  # of a proposal


class StoppedError(Exception):
    """Raised when a signal ended the training after a checkpoint."""

    def __init__(self, number: signal.Signals) -> None:
        super().__init__(number)
        self.code = 128 + number


def _declare(*rows: Row) -> Table:
    """Table 3's base with proposals.

    Except at ``quick``, checkpoints are as far apart as in the decoding table, so that its
    trainings can serve as the base. Final perplexity does not depend on that, nor on whether
    checkpoints are averaged too.
    """
    return Table(
        name="try",
        title="Proposals",
        base=override(BASE, also_average=None),
        rows=(row(BASE_ROW), *rows),
        scales=tuple(scale for scale in DECODING.scales if scale.name != "quick"),
    )


def _committed(scale: str) -> Path | None:
    """The committed results with runs of the base; None if they are not here."""
    path = RESULTS / f"noise-{scale}"
    return path if (path / PLAN_FILE).is_file() else None


class Desk:
    """The proposals in ``root`` at a scale, with their plan, their runs and the ledger.

    Raises:
        InputError: if ``root`` has runs of another table or scale.
    """

    def __init__(self, root: Path, scale: str, options: Options) -> None:
        table = _declare()
        self.root, self.options = root, options
        self.scale = find_scale(table, scale)
        self.seeds = _SEEDS_AT.get(scale, _SEEDS)
        self.ledger = Ledger(root)
        plan = make_plan(table, self.scale, table.rows, BASE_SEEDS)
        if not (root / PLAN_FILE).exists() and (results := _committed(scale)) is not None:
            # A slower precision costs less than ten trainings of the base.
            base = share_arithmetic(plan.base, load_plan(results).base)
            plan = replace(plan, base=base)
        self.plan = with_rows_there(root, settle_plan(root, plan))
        self.base, self.base_seeds = self.ledger.base(BASE_SEEDS)
        rows = {each.name for each in self.plan.rows}
        missing = [name for name in (*self.ledger.tried, self.base) if name not in rows]
        if missing:
            raise InputError(
                f"{root / PLAN_FILE} lacks {missing[0]}, which {self.ledger.path} has: restore the "
                f"file, or remove {root} to begin anew"
            )
        trust_copies(root, self.plan.row(self.base).changes)

    def plan_row(self, proposal: Row) -> PlannedRow:
        """A proposal on top of the current base, with the seeds that it gets."""
        whole = on_base(proposal, self.plan.row(self.base).changes)
        name = "proposal" if proposal.name == BASE_ROW else proposal.name
        table = _declare(replace(whole, name=name))
        planned = make_plan(table, self.scale, table.rows[1:], self.base_seeds[:1]).row(name)
        return replace(planned, name=proposal.name, seeds=self.base_seeds[: self.seeds])

    def find(self, planned: PlannedRow) -> PlannedRow | None:
        """The row of an earlier proposal with these settings and this source, if there is one.

        The ledger records the source that was tried; the plan follows edits of the project's
        classes.
        """
        wanted, tried = self._identity(planned), self.ledger.tried
        for each in self.plan.rows:
            line = tried.get(each.name)
            is_same = line is None or line.classes == classes_of(planned)
            if each.name != BASE_ROW and is_same and self._identity(each) == wanted:
                return each
        return None

    def _identity(self, planned: PlannedRow) -> Config:
        return identity(planned.configure(self.plan.base, seed=0))

    def number(self, name: str) -> int:
        """The number of a row; the first base is number 0."""
        return [each.name for each in self.plan.rows].index(name)

    def free_name(self, name: str) -> str:
        """The name of a new row, with its number if the name is taken."""
        taken = {each.name.lower() for each in self.plan.rows}
        number = len(self.plan.rows)
        return f"{name}-{number}" if name.lower() in taken else name

    def add(self, planned: PlannedRow) -> None:
        """Add a row, or replace it by one with more seeds."""
        others = [each for each in self.plan.rows if each.name != planned.name]
        at = self.number(planned.name) if len(others) < len(self.plan.rows) else len(others)
        rows = (*others[:at], planned, *others[at:])
        self.plan = claim_plan(self.root, replace(self.plan, rows=rows))

    def make_base(self) -> None:
        """Take the base's runs from committed results, or train those that are missing."""
        if not (self.root / PLAN_FILE).exists():
            self.plan = claim_plan(self.root, self.plan)
        if self.base == BASE_ROW and self._lacks_results():
            self._take_results()
        self.train(self.base, self.base_seeds, says="training the base first", retry=True)
        found = self.scores(self.base, self.base_seeds)
        if len(found.by_seed) < len(self.base_seeds):
            seeds = ", ".join(map(str, sorted({*self.base_seeds} - found.by_seed.keys())))
            why = f" ({found.reasons[0]})" if found.reasons else ""
            raise InputError(
                f"{self.root / self.base} has no result for seed {seeds}{why}: fix that, and run "
                "the same command again"
            )

    def _lacks_results(self) -> bool:
        """Whether runs of the first base could be taken from committed results.

        If all are missing after proposals were tried, the user has removed them to train them here.
        """
        count = len([*(self.root / BASE_ROW).glob("seed-*")])
        return 0 < count < len(BASE_SEEDS) or len(self.plan.rows) == 1

    def _take_results(self) -> None:
        path = _committed(self.plan.scale)
        if path is None:
            if not RESULTS.exists():
                print(
                    "there are no committed runs of the base here: a clone has them (docs/runs.md)"
                )
            return
        try:
            copied = Earlier(path, self.plan).copy(self.root)
        except InputError as error:  # of another precision, or of an earlier version
            print(f"{path} is not taken as the base: {error}", flush=True)
            return
        if copied:
            print(f"{counted(len(copied), 'run')} of the base taken from {path}", flush=True)

    def train(
        self,
        name: str,
        seeds: Sequence[int],
        *,
        deadline: float = math.inf,
        says: str = "",
        retry: bool = False,
    ) -> None:
        """Train a row's unfinished runs with these seeds.

        Args:
            deadline: when runs end after a checkpoint, by time.monotonic()
            says: text to print, with the expected time, if any run is left
            retry: also try runs that were given up before

        Raises:
            StoppedError: after a signal.
        """
        trust_copies(self.root, self.plan.row(name).changes)
        planned = TableRuns(self.root)
        names = [str(Cell(name, seed)) for seed in seeds]
        runs = {run.name: run for run in planned.folder.look() if run.name in names}
        left = [each for each in names if not runs[each].has_ended]
        if not left:
            return
        executor = find_executor(self.options, self.plan.base)
        if says:
            seconds = self._seconds(name, list(runs.values()), len(left), len(executor.places()))
            print(f"{says}: {counted(len(left), 'run')}, about {duration(seconds)}", flush=True)
        options = replace(self.options, retry_failed=retry)
        received, _ = train(planned, names, executor, options, deadline=deadline)
        if received is not None:
            raise StoppedError(received)

    def _seconds(self, name: str, runs: Sequence[Run], left: int, places: int) -> float:
        known = [run.seconds for run in runs if run.seconds is not None]
        if not known:
            from ablations.costs.measure import measured_speed  # imports torch

            config = self.plan.configs[name]
            known = [measured_speed({name: config}).seconds(config, 1)]
        return until_the_last([], [fmean(known)] * left, places)

    def scores(self, name: str, seeds: Sequence[int]) -> Scores:
        """The scores of a row with these seeds."""
        return read_scores(self.root, self.plan, name, seeds)


def classes_of(planned: PlannedRow) -> tuple[str, ...]:
    """The classes of a row as ``Class@digest``."""
    names = [str(planned.changes[of]) for of in OPTIONS_OF if planned.changes.get(of)]
    return tuple(f"{class_name(name)}@{split_name(name)[2]}" for name in names)
