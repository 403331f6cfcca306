"""Optuna's view of a directory: a journal with one writer, rebuilt from the runs' files."""

from __future__ import annotations

import os
import warnings
from collections.abc import Iterator, Mapping
from pathlib import Path

import optuna
from optuna.exceptions import ExperimentalWarning
from optuna.storages import BaseStorage, InMemoryStorage, JournalStorage
from optuna.storages.journal import JournalFileBackend, JournalFileOpenLock
from optuna.trial import FrozenTrial, TrialState

from ablations.files import STUDY_FILE
from ablations.runs.attempts import Ended
from ablations.runs.cells import Cells
from experiments.records.experiment import Experiment
from transformer.files import rename


class Study:
    """The trials of ``cells``: one for each cell that has begun.

    Args:
        cells: a table or a search
        in_memory: keep no file, since other drivers work on the same directory
    """

    def __init__(self, cells: Cells, *, in_memory: bool = False) -> None:
        warnings.filterwarnings("ignore", category=ExperimentalWarning)
        optuna.logging.set_verbosity(optuna.logging.ERROR)
        self._cells = cells
        self._running: dict[str, optuna.Trial] = {}
        self._reported: dict[str, int] = {}
        path = cells.root / STUDY_FILE
        self._study = self._load(InMemoryStorage() if in_memory else self._open(path))

    def begin(self, name: str) -> Experiment:
        """The configuration of a cell, whose trial is running from now on.

        Raises:
            InputError: if a search finds no valid model.
        """
        if name not in self._running:
            self._running[name] = self._cells.ask(self._study, name)
        return self._cells.experiment(name, self._running[name])

    def prunes_at(self, name: str, curve: Mapping[int, float]) -> int | None:
        """Report the values of a running trial by step; the step at which it is to end, if any.

        Optuna is asked at each step, as it compares trials at the same step.
        """
        trial = self._running[name]
        return next((step for step in self._report(name, curve) if trial.should_prune()), None)

    def end(self, name: str, ended: Ended) -> None:
        """Tell Optuna how a run has ended."""
        found = self._cells.to_trial(name, ended)
        if found is None:
            return self.fail(name)
        # All values, since later trials are compared with them and a pruned trial's is its last.
        list(self._report(name, found.intermediate_values))
        pruned = found.state == TrialState.PRUNED
        values, state = (None, found.state) if pruned else (found.values, None)
        self._study.tell(self._running.pop(name), values, state)
        return None

    def fail(self, name: str) -> None:
        """Tell Optuna that a trial has failed for good."""
        self._study.tell(self._running.pop(name), state=TrialState.FAIL)

    def _report(self, name: str, curve: Mapping[int, float]) -> Iterator[int]:
        for step in sorted(x for x in curve if x > self._reported.get(name, -1)):
            self._running[name].report(curve[step], step)
            self._reported[name] = step
            yield step

    def _open(self, path: Path) -> BaseStorage:
        """The journal at ``path``, written anew unless its trials are what the files tell.

        A trial that was running when its driver ended waits again, under the same number.
        """
        found = self._read(path)
        restored = self._cells.restore({self._cells.name_of(trial): trial for trial in found})
        if found and [*map(id, found)] == [*map(id, restored)]:
            return _journal(path)
        new = path.with_name(f".{path.name}.{os.getpid()}.part")
        new.unlink(missing_ok=True)
        study = self._load(_journal(new))
        for trial in restored:
            study.add_trial(trial)
        rename(new, path)
        return _journal(path)

    def _read(self, path: Path) -> list[FrozenTrial]:
        try:
            if not path.read_bytes().endswith(b"\n"):
                return []  # missing, or the end of the last line is
            return self._load(_journal(path)).get_trials(deepcopy=False)
        except FileNotFoundError:
            return []
        except Exception as error:  # whatever Optuna makes of a damaged file
            warnings.warn(f"{path} is damaged, and made again ({error})", stacklevel=2)
            return []

    def _load(self, storage: BaseStorage) -> optuna.Study:
        settings = self._cells.study
        study = optuna.create_study(
            storage=storage,
            sampler=settings.sampler,
            pruner=settings.pruner,
            study_name=settings.name,
            directions=list(settings.directions),
            load_if_exists=True,
        )
        if study.metric_names != list(settings.metrics):
            study.set_metric_names(list(settings.metrics))
        return study


class _NoLock(JournalFileOpenLock):
    """The driver is the only writer; a lock that a killed one leaves would block the next."""

    def acquire(self) -> bool:
        return True

    def release(self) -> None:
        pass


def _journal(path: Path) -> JournalStorage:
    return JournalStorage(JournalFileBackend(str(path), _NoLock(str(path))))
