"""Cells of a table: each row with each seed."""

from __future__ import annotations

from collections.abc import Mapping
from math import isfinite
from pathlib import Path
from typing import Any

import optuna
from optuna.distributions import BaseDistribution, FloatDistribution, IntDistribution
from optuna.storages import BaseStorage
from optuna.trial import FrozenTrial, TrialState, create_trial

from ablations.runs.attempts import Ended, read_ended
from ablations.tables.changes import columns
from ablations.tables.plan import load_plan
from ablations.tables.table import Cell
from experiments.records.experiment import Experiment
from experiments.records.result import MEASURES
from transformer.evaluation.counts import run_flops

_ENDED = (TrialState.COMPLETE, TrialState.PRUNED)


class TableCells:
    """The runs of the plan in ``root``; see :class:`ablations.runs.study.Cells`."""

    is_search = False

    def __init__(self, root: Path) -> None:
        self.root = root
        self.plan = plan = load_plan(root)
        flops = {row: run_flops(config) for row, config in plan.configs.items()}
        longest_first = sorted(plan.cells, key=lambda cell: -flops[cell.row])
        self._cells: dict[str, Cell] = {str(cell): cell for cell in longest_first}
        self.names = tuple(self._cells)
        self.title = f"{plan.table} at scale {plan.scale}"
        self._settings = {name: columns(config) for name, config in plan.configs.items()}
        self._shown = plan.shown
        self._ranges = _ranges([self._settings[row] for row in plan.configs], self._shown)
        self._measures = [MEASURES[name] for name in plan.valid_measures]

    def create_study(self, storage: BaseStorage) -> optuna.Study:
        """The measures of the validation set are the values; nothing is sampled or pruned."""
        study = optuna.create_study(
            storage=storage,
            sampler=optuna.samplers.RandomSampler(seed=0),
            study_name=f"{self.plan.table}-{self.plan.scale}",
            directions=[measure.direction for measure in self._measures],
            load_if_exists=True,
        )
        study.set_metric_names([f"validation {measure.label}" for measure in self._measures])
        return study

    def name_of(self, trial: FrozenTrial) -> str:
        """The cell of a trial, which is not among its parameters: their choices could not grow."""
        return str(trial.user_attrs.get("cell", ""))

    def restore(self, known: Mapping[str, FrozenTrial]) -> list[FrozenTrial]:
        """The runs that have ended, in the order of ``known`` and then of the cells."""
        found: list[FrozenTrial] = []
        for name in dict.fromkeys([*(x for x in known if x in self._cells), *self.names]):
            ended, trial = read_ended(self.root / name), known.get(name)
            if ended is not None and (trial is None or trial.state not in _ENDED):
                trial = self.to_trial(name, ended)
            if ended is not None and trial is not None:
                found.append(trial)
        return found

    def ask(self, study: optuna.Study, name: str) -> optuna.Trial:
        """A trial whose parameters are the cell's settings, which optuna-dashboard draws."""
        study.add_trial(self._trial(name, TrialState.WAITING))
        return study.ask()

    def experiment(self, name: str, trial: optuna.Trial) -> Experiment:
        """The scaled row with its seed."""
        del trial
        return self.plan.experiment(self._cells[name])

    def to_trial(self, name: str, ended: Ended) -> FrozenTrial | None:
        """A trial with the run's scores on the validation set; None if they are not finite."""
        found = [getattr(ended.result, measure.name, None) for measure in self._measures]
        values = [value for value in found if value is not None and isfinite(value)]
        if len(values) < len(found):
            return None
        return self._trial(name, TrialState.COMPLETE, values)

    def _trial(
        self, name: str, state: TrialState, values: list[float] | None = None
    ) -> FrozenTrial:
        """A trial with the row, the seed, and the settings that are no parameters as attributes."""
        cell = self._cells[name]
        settings = self._settings[cell.row]
        return create_trial(
            state=state,
            values=values,
            params={key: settings[key] for key in self._ranges},
            distributions=self._ranges,
            user_attrs={"cell": name, "row": cell.row, "seed": cell.seed}
            | {key: settings[key] for key in self._shown if key not in self._ranges},
        )


def _ranges(rows: list[dict[str, Any]], shown: tuple[str, ...]) -> dict[str, BaseDistribution]:
    """The ranges of the numbers in which the rows of a table differ.

    Words are left out: the choices of an Optuna parameter cannot grow by those of a later row.
    """
    found: dict[str, BaseDistribution] = {}
    for name in shown:
        values = [row[name] for row in rows]
        numbers = [value for value in values if isinstance(value, (int, float))]
        if len(numbers) < len(values) or len(set(numbers)) == 1:
            continue
        low, high = min(numbers), max(numbers)
        if all(isinstance(value, int) for value in numbers):
            found[name] = IntDistribution(int(low), int(high))
        else:
            found[name] = FloatDistribution(low, high)
    return found
