"""The runs of a table: finished, unfinished, or left out."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from ablations.runs.attempts import locate, number
from ablations.tables.collect import finished_result
from ablations.tables.plan import Plan
from ablations.tables.table import Cell
from experiments.records.progress import Progress, RunState, read_progress
from experiments.records.result import RESULT_FILE, Result
from transformer.config import DataConfig, text_settings
from transformer.errors import InputError

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
        progress, text = self.progress, self.short
        if self.left_out:
            return f"left out: {self.left_out}"
        if progress is None or progress.stage not in (*_FAILURES, RunState.STOPPED):
            return text
        if progress.step:
            text += f" at step {progress.step:,} of {progress.max_steps:,}"
        failed = progress.stage in _FAILURES
        return f"{text} ({progress.message or 'no reason recorded'})" if failed else text

    @property
    def urgency(self) -> tuple[bool, bool, int]:
        """Sorts a row's unfinished runs: the furthest late, failures last."""
        if self.progress is None:
            return bool(self.left_out), False, 0
        return self.progress.stage in _FAILURES, True, self.progress.step


Run = Result | Unfinished


def read_runs(plan: Plan, directory: Path) -> dict[Cell, Run]:
    """All runs of the plan, in its order.

    Runs on other data than most with the same settings of it are set apart, and never averaged in.
    Results that do not name their data are accepted.
    """
    runs = {cell: _read(cell, plan, directory) for cell in plan.cells}
    settings = {name: text_settings(config) for name, config in plan.configs.items()}
    digests: Mapping[tuple[DataConfig, int], Counter[str]] = defaultdict(Counter)
    for cell, run in runs.items():
        if isinstance(run, Result) and run.data_digest:
            digests[settings[cell.row]][run.data_digest] += 1
    for cell, run in runs.items():
        if isinstance(run, Result) and run.data_digest:
            ((most, _),) = digests[settings[cell.row]].most_common(1)
            if run.data_digest != most:
                other = f"its data is {run.data_digest}, that of most runs is {most}"
                runs[cell] = Unfinished(cell, None, other)
    return runs


def _read(cell: Cell, plan: Plan, directory: Path) -> Run:
    """The result of a run, if it is valid and of this cell."""
    path = locate(cell.directory(directory))
    try:
        return finished_result(plan, cell, path) or Unfinished(cell, read_progress(path))
    except InputError as error:
        return Unfinished(cell, None, str(error))


def unplanned_runs(plan: Plan, directory: Path) -> list[str]:
    """The directories with a result that the plan does not list."""
    finished = sorted(
        x.parent for x in directory.glob(f"*/seed-*/{RESULT_FILE}") if not number(x.parent)
    )
    names = [path.relative_to(directory).as_posix() for path in finished]
    declared = set(map(str, plan.cells))
    return [name for name in names if name not in declared]
