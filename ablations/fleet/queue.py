"""The queue of a table: an Optuna study in which each cell, a row with a seed, is one trial.

The result files are the truth. The study is made to agree with them, so deleting it loses nothing.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from math import isnan
from typing import Any

import optuna
from optuna.trial import TrialState, create_trial
from sqlalchemy.exc import SQLAlchemyError

from ablations.table import Cell
from experiments.results import Result
from transformer.errors import InputError

STORAGE_ERRORS = (SQLAlchemyError, optuna.exceptions.StorageInternalError)
STUDY_FILE = "study.sqlite3"
_DIRECTIONS = ("minimize", "maximize")  # perplexity, BLEU


class Queue:
    """The cells that wait, run or have ended, for one coordinator at a time.

    A cell is kept in a trial's attributes and not in its parameters: a categorical parameter
    could not grow by the rows of a later call.

    Example:
        >>> queue = Queue("sqlite:///study.sqlite3", "table3-quick")
        >>> queue.reconcile([Cell("base", 1)], results={}, live=())
        >>> cell = queue.take()
    """

    def __init__(self, url: str, name: str) -> None:
        """Open the study ``name`` in the storage at ``url``, or make it.

        Raises:
            InputError: if the storage cannot be used.
        """
        optuna.logging.set_verbosity(optuna.logging.ERROR)
        try:
            self._study = optuna.create_study(
                storage=optuna.storages.RDBStorage(url),
                study_name=name,
                directions=_DIRECTIONS,
                sampler=optuna.samplers.RandomSampler(seed=0),  # nothing is sampled
                load_if_exists=True,
            )
        except (*STORAGE_ERRORS, RuntimeError) as error:
            reason = str(error).splitlines()[0]
            raise InputError(
                f"the study at {url} cannot be used ({reason}); "
                "it may be deleted, results are kept in files of their own"
            ) from error
        self._running: dict[Cell, optuna.Trial] = {}

    def reconcile(
        self, cells: Sequence[Cell], results: Mapping[Cell, Result], live: Collection[Cell]
    ) -> None:
        """Make the study agree with the results, and queue what is missing in the given order.

        Missing is a cell without a result that neither is live nor waits. A trial that seems to
        run but is not live was left by a coordinator that died: it is closed.
        """
        waiting: list[Cell | None] = []
        complete: set[Cell | None] = set()
        for trial in self._study.get_trials(deepcopy=False):
            cell = _cell(trial.user_attrs)
            if trial.state == TrialState.WAITING:
                waiting.append(cell)
            elif trial.state == TrialState.COMPLETE:
                complete.add(cell)
            elif trial.state == TrialState.RUNNING and cell not in live:
                result = results.get(cell) if cell else None
                self._close(trial.number, result)
                complete.add(cell if result else None)
        for cell, result in results.items():
            if cell not in complete:
                self._import(cell, result)
        missing = [cell for cell in cells if cell not in results and cell not in live]
        if waiting != missing[: len(waiting)]:
            self._drop_waiting()
            waiting = []
        for cell in missing[len(waiting) :]:
            self._study.enqueue_trial({}, user_attrs={"row": cell.row, "seed": cell.seed})

    def take(self) -> Cell | None:
        """The next cell to run, from now on marked as running; None when the queue is empty."""
        while self._waits():
            trial = self._study.ask()
            cell = _cell(trial.user_attrs)
            if cell is not None:
                self._running[cell] = trial
                return cell
            self._close(trial.number, None)  # another program's, or a queue emptied meanwhile
        return None

    def _waits(self) -> bool:
        return bool(self._study.get_trials(deepcopy=False, states=(TrialState.WAITING,)))

    def _drop_waiting(self) -> None:
        """Empty the queue of an earlier call: its rows are not asked for, or in another order."""
        while self._waits():
            self._close(self._study.ask().number, None)

    def finish(self, cell: Cell, result: Result) -> None:
        """Close the running ``cell`` with its result."""
        self._close(self._running.pop(cell).number, result)

    def fail(self, cell: Cell, reason: str) -> None:
        """Close the running ``cell`` without a result; a later call queues it anew."""
        trial = self._running.pop(cell)
        trial.set_user_attr("reason", reason)
        self._close(trial.number, None)

    def _close(self, number: int, result: Result | None) -> None:
        values = _values(result) if result else None
        if values is None:
            self._study.tell(number, state=TrialState.FAIL)
        else:
            self._study.tell(number, values)

    def _import(self, cell: Cell, result: Result) -> None:
        values = _values(result)
        if values is not None:
            attributes = {"row": cell.row, "seed": cell.seed}
            self._study.add_trial(
                create_trial(state=TrialState.COMPLETE, values=values, user_attrs=attributes)
            )


def _cell(attributes: Mapping[str, Any]) -> Cell | None:
    row, seed = attributes.get("row"), attributes.get("seed")
    return Cell(row, seed) if isinstance(row, str) and isinstance(seed, int) else None


def _values(result: Result) -> list[float] | None:
    """The study's objectives; None where the run diverged, which Optuna cannot hold."""
    values = [result.perplexity, result.bleu]
    return None if any(isnan(value) for value in values) else values
