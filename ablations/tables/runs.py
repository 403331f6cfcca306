"""A table as a fleet's work: its cells are rows with a seed, the longest first."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import isfinite
from pathlib import Path
from typing import Any

import optuna
from optuna.trial import FrozenTrial, TrialState, create_trial

from ablations.costs.timing import work
from ablations.report.report import announce, write_report
from ablations.runner.attempts import read_result
from ablations.runner.work import Direction
from ablations.tables.plan import PLAN_FILE, Plan, load_plan
from ablations.tables.table import Cell
from experiments.run.experiment import Experiment
from transformer.config import to_dict


class TableWork:
    """The cells of the plan in ``root``; rows and seeds that a later call adds are taken up.

    Raises:
        InputError: if the directory is not a table's.
    """

    directions: Sequence[Direction] = ("minimize", "maximize")  # perplexity, BLEU

    def __init__(self, root: Path) -> None:
        self.root = root
        # Nothing is sampled, and a table is never pruned.
        self.sampler: optuna.samplers.BaseSampler = optuna.samplers.RandomSampler(seed=0)
        self.pruner: optuna.pruners.BasePruner = optuna.pruners.NopPruner()
        self._plan, self._read_at = load_plan(root), self._changed_at()
        self._cells = self._in_order()

    @property
    def study(self) -> str:
        """The study's name."""
        return self._plan.study

    @property
    def title(self) -> str:
        """What a person is told it is."""
        return f"{self._plan.table} at scale {self._plan.scale}"

    @property
    def plan(self) -> Plan:
        """The table as it is planned now."""
        changed_at = self._changed_at()
        if changed_at != self._read_at:
            self._plan, self._read_at = load_plan(self.root), changed_at
            self._cells = self._in_order()
        return self._plan

    @property
    def names(self) -> Sequence[str]:
        """All cells, the one with the most FLOPs first."""
        return list(self.plan and self._cells)

    def describe(self) -> Mapping[str, Any]:
        """The plan."""
        return to_dict(self.plan)

    def is_done(self, directory: Path) -> bool:
        """Whether there is a result that can be read."""
        return read_result(directory) is not None

    def parameters(self, name: str) -> Mapping[str, Any]:
        """None: a cell is its own."""
        del name
        return {}

    def experiment(self, name: str, trial: optuna.Trial) -> Experiment:
        """The scaled row with its seed."""
        del trial
        return self.plan.experiment(self.cell(name))

    def cell(self, name: str) -> Cell:
        """The cell of that name."""
        return self._cells[name]

    def finished_trial(self, name: str) -> FrozenTrial | None:
        """A trial with the perplexity and the BLEU of the cell."""
        result = read_result(self.root / name)
        values = [] if result is None else [result.perplexity, result.bleu]
        if not values or not all(map(isfinite, values)):
            return None
        return create_trial(state=TrialState.COMPLETE, values=values, user_attrs={"cell": name})

    def reports(self, directory: Path) -> Mapping[int, float]:
        """None."""
        del directory
        return {}

    def write_report(self) -> None:
        """The report beside the paper's figures."""
        write_report(self.root)

    def announce(self) -> None:
        """Print it."""
        announce(write_report(self.root), self.root)

    def diverge(self, directory: Path, step: int) -> None:
        """Nothing: the row has no figures."""

    def prune(self, directory: Path, step: int, value: float) -> None:
        """Never comes to it."""
        raise AssertionError(f"{directory} is a table's: nothing in it is pruned")

    def _changed_at(self) -> int:
        return (self.root / PLAN_FILE).stat().st_mtime_ns

    def _in_order(self) -> dict[str, Cell]:
        flops = {cell: work(self._plan.experiment(cell).config) for cell in self._plan.cells}
        return {str(cell): cell for cell in sorted(flops, key=lambda cell: -flops[cell])}
