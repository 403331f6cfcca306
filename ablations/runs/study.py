"""Optuna's journal of a directory, rebuilt from the runs' files."""

from __future__ import annotations

import os
import warnings
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Protocol

import optuna
from optuna.exceptions import ExperimentalWarning
from optuna.storages import BaseStorage, InMemoryStorage, JournalStorage
from optuna.storages.journal import JournalFileBackend, JournalFileOpenLock
from optuna.trial import FrozenTrial, TrialState

from ablations.files import STUDY_FILE
from ablations.folder.base import Folder
from experiments.records.experiment import Experiment
from experiments.records.run import Run
from transformer.files import making, read_bytes, rename

_MOST_BYTES = 256_000_000  # enough for the journal of a long search


class PlannedRuns(Protocol):
    """The runs that a table or a search plans, and their trials in Optuna's study.

    ``names`` are the runs' paths below ``root``, in the order in which they start; ``folder`` reads
    them, and ``title`` is for users. If ``prunes`` is set, as for a search, runs start strictly in
    this order, and one may be ended early.

    ``shares`` gives the other runs with the same training as a run, ``has_training`` whether a
    finished one of them still has it, and ``checkpoints`` how many of its last ones they need.

    ``create_study`` loads the study, or makes it. ``restore`` rebuilds the trials of the runs that
    have files; what only the journal has comes from its ``known`` trials. ``ask`` makes a run's
    trial, ``experiment`` its configuration. ``to_trial`` gives the trial of a run that has ended;
    None if Optuna is to count it as failed.
    """

    root: Path
    names: tuple[str, ...]
    title: str
    prunes: bool

    @property
    def folder(self) -> Folder: ...

    def shares(self, name: str, /) -> tuple[str, ...]: ...
    def has_training(self, name: str, /) -> bool: ...
    def checkpoints(self, name: str, /) -> int: ...
    def create_study(self, storage: BaseStorage) -> optuna.Study: ...
    def restore(self, known: Sequence[FrozenTrial], /) -> list[FrozenTrial]: ...
    def ask(self, study: optuna.Study, name: str) -> optuna.Trial: ...
    def experiment(self, name: str, trial: optuna.Trial, /) -> Experiment: ...
    def to_trial(self, run: Run) -> FrozenTrial | None: ...


class Study:
    """Optuna's trials of ``planned``: one for each run that has begun.

    Args:
        planned: a table or a search
        in_memory: keep no file, since other drivers work on the same directory
    """

    def __init__(self, planned: PlannedRuns, *, in_memory: bool = False) -> None:
        warnings.filterwarnings("ignore", category=ExperimentalWarning)
        optuna.logging.set_verbosity(optuna.logging.ERROR)
        self._planned = planned
        self._running: dict[str, optuna.Trial] = {}
        self._reported: dict[str, int] = {}
        self._last_step = 0  # the same for all trials of a search
        storage = InMemoryStorage() if in_memory else self._restore(planned.root / STUDY_FILE)
        self._study = planned.create_study(storage)

    def begin(self, name: str) -> Experiment:
        """Start the trial of a run, and return the configuration to run."""
        if name not in self._running:
            self._running[name] = self._planned.ask(self._study, name)
        experiment = self._planned.experiment(name, self._running[name])
        self._last_step = experiment.config.training.max_steps
        return experiment

    def prunes_at(self, name: str, curve: Mapping[int, float]) -> int | None:
        """Report a running trial's values by step; the step at which Optuna prunes it, if any.

        Optuna compares trials at the same step, so it is asked at each step, except for the last
        one, where pruning would save nothing.
        """
        trial = self._running[name]
        curve = {step: value for step, value in curve.items() if step < self._last_step}
        for step in self._report(name, curve):
            if trial.should_prune():
                return step
        return None

    def end(self, name: str, run: Run | None) -> None:
        """Tell Optuna how a run ended; None means that it was given up."""
        found = None if run is None else self._planned.to_trial(run)
        if found is None:
            self._study.tell(self._running.pop(name), state=TrialState.FAIL)
            return
        # All values: later trials are compared with them, and a pruned trial's value is its last.
        list(self._report(name, found.intermediate_values))
        trial = self._running.pop(name)
        if found.state == TrialState.PRUNED:
            self._study.tell(trial, state=TrialState.PRUNED)
        else:
            self._study.tell(trial, found.values)

    def _report(self, name: str, curve: Mapping[int, float]) -> Iterator[int]:
        last = self._reported.get(name, -1)
        for step in sorted(step for step in curve if step > last):
            self._running[name].report(curve[step], step)
            self._reported[name] = step
            yield step

    def _restore(self, path: Path) -> BaseStorage:
        """Rebuild the journal at ``path`` from the trials that have files.

        A trial that was running when its driver ended waits again, under the same number.
        """
        restored = self._planned.restore(self._read(path))
        if path.is_dir() and not path.is_symlink():
            rename(path, path.with_name(f"{path.name}.{os.urandom(4).hex()}.broken"))
        with making(path) as new:
            study = self._planned.create_study(_journal(new))
            for trial in restored:
                study.add_trial(trial)
        return _journal(path)

    def _read(self, path: Path) -> list[FrozenTrial]:
        """The trials in the journal; none if it cannot be read, since the files have the rest."""
        if not os.path.lexists(path):
            return []
        try:
            if not read_bytes(path, _MOST_BYTES).endswith(b"\n"):
                return []  # empty, or cut in its last line
            return self._planned.create_study(_journal(path)).get_trials(deepcopy=False)
        except Exception as error:  # Optuna raises many kinds for a damaged file
            warnings.warn(f"{path} is damaged and is rebuilt ({error})", stacklevel=2)
            return []


class _NoLock(JournalFileOpenLock):
    """No lock: only the driver writes, and a lock left by a killed driver would block the next."""

    def acquire(self) -> bool:
        return True

    def release(self) -> None:
        pass


def _journal(path: Path) -> JournalStorage:
    return JournalStorage(JournalFileBackend(str(path), _NoLock(str(path))))
