"""Status, logs and figures of a directory for the dashboard."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

from ablations.figures.curves import Curve, draw_curves, read_curve
from ablations.files import SEARCH_FILE
from ablations.runs.attempts import locate
from ablations.runs.process import last_log_lines
from ablations.search.search import Search, load_search
from ablations.search.shown import draw_search, in_words, shares_of_importance
from ablations.search.trials import Trial, best, ranked, read_trial
from ablations.status.from_directory import DirectoryReader
from ablations.status.model import Run, Status
from ablations.tables.plan import Plan, load_plan
from experiments.figures.style import Spec
from experiments.records.outputs import METRICS_FILE
from experiments.records.progress import RunState
from transformer.formats import number

_LOG_LINES = 10
_FINAL = (RunState.DONE, RunState.PRUNED, RunState.DIVERGED)


class Log(NamedTuple):
    """The end of a run's log, and why it is shown."""

    run: str
    title: str
    lines: Sequence[str]


@dataclass(frozen=True, slots=True)
class Reading:
    """A directory at one time.

    ``grid`` has a table's rows, each with its run for each of the ``seeds``, or None where there is
    none; a search has neither. ``best`` describes the best trial of a search.
    """

    status: Status
    logs: Sequence[Log]
    figures: Mapping[str, Spec]
    seeds: Sequence[int] = ()
    grid: Sequence[tuple[str, Sequence[Run | None]]] = ()
    best: str = ""


class Reader:
    """Reads a directory repeatedly, but files that have not changed only once."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self._status = DirectoryReader(directory)
        self._curves: dict[str, tuple[object, Curve]] = {}
        self._trials: dict[str, Trial] = {}
        self._shares: tuple[int, Mapping[str, float]] = (0, {})

    def read(self) -> Reading:
        """The directory now.

        Raises:
            InputError: if it is not a table's or a search's, or a file cannot be read.
        """
        status = self._status.read()
        logs = list(self._logs(status))
        if (self._directory / SEARCH_FILE).is_file():
            search = load_search(self._directory)
            trials = [self._trial(search, run) for run in status.runs]
            figures = self._draw_search(search, trials)
            return Reading(status, logs, figures, best=_describe_best(best(trials)))
        plan = load_plan(self._directory)
        seeds = sorted({cell.seed for cell in plan.cells})
        runs = {run.name: run for run in status.runs}
        grid = [
            (row.name, [runs.get(f"{row.name}/seed-{seed}") for seed in seeds])
            for row in plan.rows
            if row.seeds
        ]
        return Reading(status, logs, self._draw_table(plan, runs), seeds, grid)

    def _logs(self, status: Status) -> Iterator[Log]:
        """The newest failure of each unfinished run, or the end of the log of one that stopped."""
        for run in status.runs:
            if run.state in _FINAL or run.state == RunState.WAITING:
                continue
            if run.failures:
                last = run.failures[-1]
                title = f"{run.name}, attempt {last.attempt}: {last.reason}"
                yield Log(run.name, title, last.lines)
            elif not run.is_live:
                state = "silent" if run.silent_seconds else run.state
                why = run.progress.message if run.progress else ""
                title = f"{run.name}: {state}{f' ({why})' if why else ''}, the end of its log"
                lines = last_log_lines(locate(self._directory / run.name), _LOG_LINES)
                yield Log(run.name, title, lines)

    def _draw_table(self, plan: Plan, runs: Mapping[str, Run]) -> Mapping[str, Spec]:
        """The learning curves, and those of runs that have only a training loss yet."""
        curves = [self._curve(runs[str(cell)], cell.row, cell.seed) for cell in plan.cells]
        base = next((row.name for row in plan.rows if not row.changes), None)
        found: dict[str, Spec] = {}
        for kind, is_loss in (("curves", False), ("training", True)):
            chosen = [curve for curve in curves if curve.is_of_loss == is_loss]
            if spec := draw_curves(chosen, base, by_name=plan.is_compared):
                found[kind] = spec
        return found

    def _curve(self, run: Run, row: str, seed: int) -> Curve:
        """The run's learning curve; until the first validation that of its training loss."""
        directory = locate(self._directory / run.name)
        try:
            stat = (directory / METRICS_FILE).stat()
        except OSError:
            return Curve(row=row, seeds=str(seed), points=())
        version = stat.st_ino, stat.st_mtime_ns, stat.st_size
        known, curve = self._curves.get(run.name, (None, None))
        if curve is None or known != version:
            curve = read_curve(directory, row, seed)
            if not curve.points:
                curve = read_curve(directory, row, seed, of_loss=True)
            self._curves[run.name] = version, curve
        return curve

    def _trial(self, search: Search, run: Run) -> Trial:
        if run.state == RunState.WAITING:
            return Trial(name=run.name, state=run.state)
        trial = self._trials.get(run.name) or read_trial(search, self._directory, run.name)
        if trial.state in _FINAL:
            self._trials[run.name] = trial
        return trial

    def _draw_search(self, search: Search, trials: Sequence[Trial]) -> Mapping[str, Spec]:
        ended = len(ranked(trials))
        if ended != self._shares[0]:
            self._shares = ended, shares_of_importance(search, trials)
        return draw_search(search, trials, self._shares[1])


def _describe_best(trial: Trial | None) -> str:
    if trial is None:
        return ""
    values = ", ".join(
        f"{name} {in_words(trial.declared[name], value)}" for name, value in trial.values.items()
    )
    return f"{trial.name}, perplexity {number(trial.perplexity, 3)}: {values}"
