"""What a table has come to: the numbers of its report, a pure function of the files on disk."""

from __future__ import annotations

import math
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from ablations.files import PLAN_FILE
from ablations.report.pooling import Pool, pool
from ablations.report.statistics import (
    Correlation,
    Difference,
    Estimate,
    estimate,
    paired_difference,
    rank_correlation,
)
from ablations.runs.attempts import locate, number
from ablations.tables.changes import Value
from ablations.tables.collect import finished_result
from ablations.tables.plan import Plan, PlannedRow, load_plan
from ablations.tables.table import Cell
from experiments.run.measures import MEASURES, Measure
from experiments.run.progress import Progress, RunState, read_progress
from experiments.run.results import RESULT_FILE, Result
from transformer.config import DataConfig, text_settings
from transformer.errors import InputError

AVERAGED = "averaged_"
_MORE_SCORES = ("tokenised_bleu", f"{AVERAGED}perplexity", f"{AVERAGED}bleu", f"{AVERAGED}f1")
_FAILURES = (RunState.REFUSED, RunState.DIVERGED, RunState.FAILED)


@dataclass(frozen=True, slots=True)
class Unfinished:
    """A run without a result: its progress, or why its result is ``left_out``."""

    cell: Cell
    progress: Progress | None
    left_out: str | None = None

    @property
    def short(self) -> str:
        """Its state in the fewest words."""
        progress = self.progress
        if progress is None:
            return "left out" if self.left_out else "missing"
        if progress.stage in (*_FAILURES, RunState.STOPPED):
            return str(progress.stage)
        if progress.stage == RunState.TRAIN and progress.max_steps:
            return f"step {progress.step:,} of {progress.max_steps:,}"
        scoring = progress.stage in (RunState.EVALUATE, RunState.DONE)
        return "in evaluation" if scoring else "in preparation"

    def __str__(self) -> str:
        progress = self.progress
        if self.left_out:
            return f"left out: {self.left_out}"
        if progress is None or progress.stage not in (*_FAILURES, RunState.STOPPED):
            return self.short
        where = f" at step {progress.step:,} of {progress.max_steps:,}" if progress.step else ""
        if progress.stage == RunState.STOPPED:
            return f"stopped{where}"
        return f"{progress.stage}{where} ({progress.message or 'no reason recorded'})"

    @property
    def urgency(self) -> tuple[bool, bool, int]:
        """Which of a row's unfinished runs to show: a failure first, then the furthest."""
        if self.progress is None:
            return bool(self.left_out), False, 0
        return self.progress.stage in _FAILURES, True, self.progress.step


Run = Result | Unfinished


@dataclass(frozen=True, kw_only=True, slots=True)
class RowSummary:
    """A row and its runs.

    ``settings`` are the values of all settings as run, ``changed`` those that differ from the
    base's. ``scores`` are means over the seeds, by the names of the fields of a Result; those of
    the mean of several checkpoints begin with ``averaged_``.
    """

    row: PlannedRow
    settings: dict[str, Value]
    changed: frozenset[str]
    results: tuple[Result, ...]
    unfinished: tuple[Unfinished, ...]
    scores: Mapping[str, Estimate]

    @property
    def is_base(self) -> bool:
        """Whether the row changes nothing."""
        return not self.row.changes and not self.row.published


@dataclass(frozen=True, kw_only=True, slots=True)
class Summary:
    """The rows of a table that were asked for, in order, whose runs are in ``directory``.

    ``pools`` are the spreads of each measure, pooled over the rows that can be compared, if there
    are enough seeds;
    ``unplanned`` are directories with a result that the plan does not list.
    """

    directory: Path
    plan: Plan
    rows: tuple[RowSummary, ...]
    pools: Mapping[str, Pool]
    unplanned: tuple[str, ...]

    @property
    def measures(self) -> Sequence[Measure]:
        """The scores that the table compares."""
        return [MEASURES[name] for name in self.plan.measures]

    @property
    def base(self) -> RowSummary | None:
        """The row that changes nothing, if it was asked for."""
        return next((row for row in self.rows if row.is_base), None)

    @property
    def results(self) -> tuple[Result, ...]:
        """All finished runs."""
        return tuple(result for row in self.rows for result in row.results)

    def difference(self, row: RowSummary, name: str) -> Difference | None:
        """A row's score less the base's; None without a common seed, or if they cannot be compared.

        The deviation is the pooled one if that is usable.
        """
        if self.base is None or not _is_comparable(row, name):
            return None
        scale = MEASURES[name].scale
        found = paired_difference(_by_seed(row, name), _by_seed(self.base, name), scale)
        pooled = self.pools.get(name)
        return pooled.apply(found) if found and pooled else found

    def reported_difference(self, row: RowSummary, name: str) -> float | None:
        """The same difference in the paper; None if the paper gives no figures."""
        if "target_language" in row.changed or row.row.published:
            return None
        ours, base = reported(row, name), reported(self.base, name) if self.base else None
        return None if ours is None or base is None else ours - base

    def correlation(self, name: str) -> Correlation:
        """How far our scores order the rows as the paper's do."""
        both: list[tuple[float, float]] = []
        for row in self.rows:
            ours, paper = row.scores.get(name), reported(row, name)
            if ours is not None and paper is not None and not math.isnan(ours.mean):
                both.append((ours.mean, paper))
        return rank_correlation([x for x, _ in both], [y for _, y in both])


def _is_comparable(row: RowSummary, name: str) -> bool:
    """Whether a row has the base's text and, as perplexity is per word-piece, its vocabulary."""
    apart = {"target_language", "vocab_size"} if "perplexity" in name else {"target_language"}
    return not apart & row.changed


def reported(row: RowSummary, name: str) -> float | None:
    """The paper's figure of a row."""
    return getattr(row.row.reported, name, None)


def summarise(directory: Path) -> Summary:
    """Read a table's directory.

    Raises:
        InputError: if it is not the directory of a table.
    """
    plan = load_plan(directory)
    for row in plan.rows:
        if len(set(row.seeds)) < len(row.seeds):
            seeds = ", ".join(map(str, row.seeds))
            raise InputError(
                f"{directory / PLAN_FILE} lists a seed of row {row.name!r} twice ({seeds}): "
                "name each once"
            )
    runs = _of_the_same_data({cell: _read(cell, plan, directory) for cell in plan.cells}, plan)
    rows = tuple(_row(row, plan, runs) for row in plan.rows if row.seeds or row.published)
    names = plan.measures if any(len(row.results) > 1 for row in rows) else ()
    pools = {
        name: pool({x.row.name: _by_seed(x, name) for x in rows if _is_comparable(x, name)})
        for name in names
    }
    return Summary(
        directory=directory,
        plan=plan,
        rows=rows,
        pools={name: found for name, found in pools.items() if found},
        unplanned=_unplanned(plan, directory),
    )


def _unplanned(plan: Plan, directory: Path) -> tuple[str, ...]:
    known = {str(cell) for cell in plan.cells}
    finished = sorted(path.parent for path in directory.glob(f"*/seed-*/{RESULT_FILE}"))
    names = [path.relative_to(directory).as_posix() for path in finished if not number(path)]
    return tuple(name for name in names if name not in known)


def _of_the_same_data(runs: Mapping[Cell, Run], plan: Plan) -> dict[Cell, Run]:
    """Runs on other data than most with the same settings of it are set apart, and never averaged
    in.

    Results of versions that did not record the data are accepted.
    """
    settings = {name: text_settings(config) for name, config in plan.configs.items()}
    digests: dict[tuple[DataConfig, int], Counter[str]] = defaultdict(Counter)
    for cell, run in runs.items():
        if isinstance(run, Result) and run.data_digest:
            digests[settings[cell.row]][run.data_digest] += 1
    commonest = {made_from: found.most_common(1)[0][0] for made_from, found in digests.items()}

    def checked(cell: Cell, run: Run) -> Run:
        if isinstance(run, Unfinished) or not run.data_digest:
            return run
        most = commonest[settings[cell.row]]
        if run.data_digest == most:
            return run
        other = f"its data is {run.data_digest}, that of most runs is {most}"
        return Unfinished(cell, None, other)

    return {cell: checked(cell, run) for cell, run in runs.items()}


def _by_seed(row: RowSummary, name: str) -> dict[int, float]:
    found = {result.seed: getattr(result, name) for result in row.results}
    return {seed: float(score) for seed, score in found.items() if score is not None}


def _read(cell: Cell, plan: Plan, directory: Path) -> Run:
    """The result of a run, if it is valid and of this cell."""
    path = locate(cell.directory(directory))
    try:
        return finished_result(plan, cell, path) or Unfinished(cell, read_progress(path))
    except InputError as error:
        return Unfinished(cell, None, str(error))


def _row(row: PlannedRow, plan: Plan, runs: Mapping[Cell, Run]) -> RowSummary:
    own = [runs[Cell(row.name, seed)] for seed in row.seeds]
    results = [run for run in own if isinstance(run, Result)]
    return RowSummary(
        row=row,
        settings=row.settings(plan.base),
        changed=row.changed(plan.base),
        results=tuple(results),
        unfinished=tuple(run for run in own if isinstance(run, Unfinished)),
        scores=_estimates(results, (*MEASURES, *_MORE_SCORES)),
    )


def _estimates(results: Sequence[Result], names: Iterable[str]) -> dict[str, Estimate]:
    found: dict[str, Estimate] = {}
    for name in names:
        field = name.removeprefix(AVERAGED)
        of = [x.averaged if name.startswith(AVERAGED) else x for x in results]
        values: list[float | None] = [getattr(x, field, None) for x in of]
        scale = MEASURES[field.removeprefix("tokenised_")].scale
        mean = estimate([value for value in values if value is not None], scale)
        if mean is not None:
            found[name] = mean
    return found
