"""A table's runs: each row with each seed."""

from __future__ import annotations

import warnings
from collections.abc import Container, Sequence
from math import isfinite
from pathlib import Path

import optuna
from optuna.storages import BaseStorage
from optuna.trial import FrozenTrial, TrialState, create_trial

from ablations.folder import TableFolder
from ablations.runs.shared import has_training
from ablations.tables.plan_file import refresh_plan, with_current_sources
from ablations.tables.table import Cell
from experiments.records.experiment import Experiment
from experiments.records.outputs import hypotheses_path
from experiments.records.result import MEASURES, score_key
from experiments.records.run import Run
from transformer.errors import InputError
from transformer.evaluation.counts import run_flops


class TableRuns:
    """The runs of the table in ``root``, as :class:`ablations.runs.study.PlannedRuns`.

    The values of Optuna's trials are the scores on the validation set; it neither samples nor
    prunes them.
    """

    prunes = False

    def __init__(self, root: Path) -> None:
        self.root, self.folder = root, TableFolder(root)
        self.plan = plan = self.folder.plan
        flops = {row: run_flops(config) for row, config in plan.configs.items()}
        longest_first = sorted(plan.cells, key=lambda cell: -flops[cell.row])
        self._cells: dict[str, Cell] = {str(cell): cell for cell in longest_first}
        self.names = tuple(self._cells)
        self._trainings = {row: each for each in plan.trainings for row in each.rows}
        self.title = self.folder.title
        self._measures = [MEASURES[name] for name in plan.valid_measures]

    def shares(self, name: str) -> tuple[str, ...]:
        cell = self._cells[name]
        others = (Cell(row, cell.seed) for row in self._trainings[cell.row].rows)
        return tuple(str(other) for other in others if other != cell and str(other) in self._cells)

    def has_training(self, name: str) -> bool:
        config = self.folder.config(name)
        return any(has_training(self.root / other, config) for other in self.shares(name))

    def checkpoints(self, name: str) -> int:
        return self._trainings[self._cells[name].row].checkpoints

    def create_study(self, storage: BaseStorage) -> optuna.Study:
        study = optuna.create_study(
            storage=storage,
            sampler=optuna.samplers.RandomSampler(seed=0),
            study_name=self.plan.name,
            directions=[measure.direction for measure in self._measures],
            load_if_exists=True,
        )
        study.set_metric_names([f"validation {measure.label}" for measure in self._measures])
        return study

    def restore(self, _known: Sequence[FrozenTrial], /) -> list[FrozenTrial]:
        ended = [run for run in self.folder.look() if run.has_ended]
        return [trial for run in ended if (trial := self.to_trial(run)) is not None]

    def ask(self, study: optuna.Study, name: str) -> optuna.Trial:
        study.add_trial(self._trial(name, TrialState.WAITING))
        return study.ask()

    def experiment(self, name: str, _trial: optuna.Trial, /) -> Experiment:
        self._take_edits()
        return self.plan.experiment(self._cells[name])

    def _take_edits(self) -> None:
        """Follow edits of the rows' classes, which a user may change while the table trains."""
        plan = with_current_sources(self.plan)
        if plan != self.plan:
            self.plan, self.folder = plan, TableFolder(self.root, plan)
            refresh_plan(self.root)

    def to_trial(self, run: Run) -> FrozenTrial | None:
        found = [getattr(run.result, measure.name, None) for measure in self._measures]
        values = [value for value in found if value is not None and isfinite(value)]
        if len(values) < len(found):
            return None
        return self._trial(run.name, TrialState.COMPLETE, values)

    def _trial(
        self, name: str, state: TrialState, values: list[float] | None = None
    ) -> FrozenTrial:
        cell = self._cells[name]
        return create_trial(
            state=state,
            values=values,
            user_attrs={
                "cell": name,
                "row": cell.row,
                "seed": cell.seed,
                **self.folder.settings[cell.row],
            },
        )

    def score_finished(self, names: Container[str]) -> int:
        """Add missing scores by the table's own measures to the finished runs among ``names``, from
        their translations; return how many runs got one. Runs of a collection stay as they are.

        A function that fails once is not called for the other runs.
        """
        left = {score_key(measure.function): measure.function for measure in self.plan.own_measures}
        count = 0
        for run in self.folder.runs() if left else ():
            result = run.result
            if result is None or run.name not in names:
                continue
            missing = {key: left[key] for key in left if key not in result.own_scores}
            if not missing or not hypotheses_path(run.directory, "valid").is_file():
                continue
            from experiments.evaluate.own_measures import score_finished  # imports torch

            try:
                found = score_finished(run.directory, list(missing.values()))
            except InputError as error:
                warnings.warn(f"{run.name} is not scored: {error}", stacklevel=2)
                continue
            count += bool(found)
            for key, function in missing.items():
                if function not in found:
                    del left[key]
        return count
