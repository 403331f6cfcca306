"""The runs of a table for the workers: each row with each seed, the longest first."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import isfinite
from pathlib import Path
from typing import Any

import optuna
from optuna.distributions import BaseDistribution, FloatDistribution, IntDistribution
from optuna.trial import FrozenTrial, TrialState, create_trial

from ablations.files import PLAN_FILE
from ablations.runner.attempts import read_result
from ablations.runner.run_set import Direction
from ablations.tables.changes import columns
from ablations.tables.plan import Plan, load_plan
from ablations.tables.table import Cell
from experiments.run.experiment import Experiment
from experiments.run.measures import MEASURES, Measure
from transformer.config import to_dict
from transformer.evaluation.counts import run_flops


class TableRuns:
    """The runs of the plan in ``root``; see :class:`ablations.runner.run_set.RunSet`.

    Raises:
        InputError: if the directory is not a table's.
    """

    def __init__(self, root: Path) -> None:
        self.root = root
        # Required by Optuna, but a table samples and prunes nothing.
        self.sampler: optuna.samplers.BaseSampler = optuna.samplers.RandomSampler(seed=0)
        self.pruner: optuna.pruners.BasePruner = optuna.pruners.NopPruner()
        self._read_at = -1
        self._refresh()

    def _refresh(self) -> None:
        """Read the plan again if another call has added rows or seeds."""
        path = self.root / PLAN_FILE
        changed_at = path.stat().st_mtime_ns if path.exists() else 0
        if changed_at != self._read_at:
            self._plan, self._read_at = load_plan(self.root), changed_at
            flops = {
                cell: run_flops(self._plan.experiment(cell).config) for cell in self._plan.cells
            }
            longest_first = sorted(flops, key=lambda cell: -flops[cell])
            self._cells: dict[str, Cell] = {str(cell): cell for cell in longest_first}
            self._distributions = _distributions(self._plan)

    @property
    def _measures(self) -> Sequence[Measure]:
        """The table's measures of the validation set."""
        return [MEASURES[name] for name in self._plan.valid_measures]

    @property
    def directions(self) -> Sequence[Direction]:
        """Which way each metric is better."""
        return [measure.direction for measure in self._measures]

    @property
    def metrics(self) -> Sequence[str]:
        """What Optuna and its dashboard call the values of a trial."""
        return [f"validation {measure.label}" for measure in self._measures]

    @property
    def plan(self) -> Plan:
        """The table as it is planned now."""
        self._refresh()
        return self._plan

    @property
    def study(self) -> str:
        """The name of the Optuna study."""
        return self._plan.study

    @property
    def title(self) -> str:
        """The title that users see."""
        return f"{self._plan.table} at scale {self._plan.scale}"

    @property
    def names(self) -> Sequence[str]:
        """All runs, the one with the most FLOPs first."""
        self._refresh()
        return list(self._cells)

    def describe(self) -> Mapping[str, Any]:
        """The plan."""
        return to_dict(self.plan)

    def is_done(self, directory: Path) -> bool:
        """Whether there is a readable result."""
        return read_result(directory) is not None

    def parameters(self, name: str) -> Mapping[str, Any]:
        """Nothing: a table samples no parameters."""
        del name
        return {}

    def attributes(self, name: str) -> Mapping[str, Any]:
        """The row, the seed, and the settings that are no parameters."""
        cell = self._cells[name]
        settings = columns(self._plan.experiment(cell).config)
        rest = {key: settings[key] for key in self._plan.shown if key not in self._distributions}
        return {"cell": name, "row": cell.row, "seed": cell.seed, **rest}

    def experiment(self, name: str, trial: optuna.Trial) -> Experiment:
        """The scaled row with its seed; its settings become the trial's parameters, which
        optuna-dashboard draws.
        """
        experiment = self.plan.experiment(self._cells[name])
        settings = columns(experiment.config)
        for key, distribution in self._distributions.items():
            value = distribution.to_internal_repr(settings[key])
            trial.storage.set_trial_param(trial._trial_id, key, value, distribution)
        return experiment

    def finished_trial(self, name: str) -> FrozenTrial | None:
        """A trial with the run's scores on the validation set."""
        result = read_result(self.root / name)
        found = [getattr(result, measure.name, None) for measure in self._measures]
        values = [value for value in found if value is not None and isfinite(value)]
        if len(values) < len(found):
            return None
        settings = columns(self._plan.experiment(self._cells[name]).config)
        return create_trial(
            state=TrialState.COMPLETE,
            values=values,
            params={key: settings[key] for key in self._distributions},
            distributions=self._distributions,
            user_attrs=dict(self.attributes(name)),
        )

    def reports(self, directory: Path) -> Mapping[int, float]:
        """Nothing: a table's runs are not pruned."""
        del directory
        return {}

    def diverge(self, directory: Path, step: int) -> None:
        """Do nothing: a row that diverged has failed."""

    def prune(self, directory: Path, step: int, value: float) -> None:
        """Never called."""
        raise AssertionError(f"{directory} belongs to a table, whose runs are not pruned")


def _distributions(plan: Plan) -> dict[str, BaseDistribution]:
    """The ranges of the numbers in which the rows of a table differ.

    Words are left out: the choices of an Optuna parameter cannot grow by those of a later row.
    """
    found: dict[str, BaseDistribution] = {}
    rows = [columns(config) for config in plan.configs.values()]
    for name in plan.shown:
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
