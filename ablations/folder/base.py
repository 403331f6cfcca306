"""The folder of a table or a search."""

from __future__ import annotations

import os
from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from functools import cached_property
from pathlib import Path

from ablations.collect import add_runs
from ablations.files import CONFIRM, TUNING
from ablations.tables.changes import Value
from ablations.tables.trainings import Training
from experiments.records.checksums import copied_files
from experiments.records.collection import Collection
from experiments.records.line import RUNS_FILE
from experiments.records.outputs import COLUMNS
from experiments.records.progress import RunState
from experiments.records.run import Run, locate, read_run
from transformer.config import Config
from transformer.errors import InputError
from transformer.files import copy_plain, making, within

# A value for each column, like a row of a DataFrame.
Record = dict[str, Value]
# Numbers that older results lack.
LATER_NUMBERS = ("chrf", "test_chrf")
# The numbers of a result that records and results.csv contain, where a run has them.
NUMBERS = (
    *("seed", "perplexity", "bleu", "tokenised_bleu", "test_perplexity", "test_bleu"),
    *(*LATER_NUMBERS, "f1", "test_f1", "parameters", "steps", "target_tokens", "flops"),
    *("train_seconds", "tokens_per_second", "device", "precision", "commit"),
)


class Folder(ABC):
    """A folder with a ``plan`` and its runs, begun or not, whose ``names`` are in the plan's order.

    A run has a folder of its own, or is a line of ``runs.jsonl``, which ``collect`` writes.

    ``labels`` name the table or the search, and the scale. ``configs`` are the rows'
    configurations by name; for a search it is the base's, under an empty name. ``parameters`` are
    the names of a search's hyperparameters, ``trainings`` the trainings of a table's rows.
    """

    path: Path
    title: str
    names: tuple[str, ...]
    labels: Mapping[str, str]
    parameters: Sequence[str] = ()
    trainings: Sequence[Training] = ()
    configs: Mapping[str, Config]

    def read(self, name: str) -> Run:
        """The current state of a run, unchecked."""
        return self._read(name, has_folder=locate(within(self.path, name)).exists())

    def _read(self, name: str, *, has_folder: bool) -> Run:
        if has_folder:
            return read_run(within(self.path, name), name)
        if name in self.collection.lines:
            return self.collection.run(name)
        return Run(name=name, directory=self.path / name)

    @cached_property
    def collection(self) -> Collection:
        """The runs that are lines."""
        return collection_of(self.path)

    def look(self, ended: dict[str, Run] | None = None) -> list[Run]:
        """The current state of all runs, unchecked.

        Args:
            ended: runs that had ended at an earlier look, which are not read again; those that
                have ended since are added
        """
        ended, begun = {} if ended is None else ended, self._begun()
        runs: list[Run] = []
        for name in self.names:
            run = ended.get(name) or self._read(name, has_folder=name in begun)
            if name not in ended and run.has_ended and run.state != RunState.STALE:
                ended[name] = run
            runs.append(run)
        return runs

    def _begun(self) -> set[str]:
        """The runs that have a directory, by listing each folder once."""
        folders = {name.rpartition("/")[:2] for name in self.names}
        return {
            f"{row}{slash}{entry.partition('.attempt-')[0]}"
            for row, slash in folders
            if (self.path / row).is_dir()
            for entry in os.listdir(self.path / row)  # noqa: PTH208 (faster for thousands of runs)
        }

    def runs(self) -> list[Run]:
        """All runs; one whose files have changed or are of other settings has no result."""
        begun = self._begun()
        return [self._checked(self._read(name, has_folder=name in begun)) for name in self.names]

    def _checked(self, run: Run) -> Run:
        try:
            self._check(run)
        except InputError as error:
            state = RunState.DONE if run.state == RunState.STALE else run.state
            return replace(run, state=state, result=None, pruned=None, problem=str(error))
        return run

    def _check(self, run: Run) -> None:
        """Check that a finished run's files are unchanged and are those of the plan's run."""
        if run.result is not None or run.state == RunState.STALE:
            run.check()

    @property
    def left(self) -> list[str]:
        """The runs that have not ended."""
        return [run.name for run in self.look() if not run.has_ended]

    def collect(self, into: Path) -> list[str]:
        """Add ended runs to the folder ``into``, as lines of ``runs.jsonl`` with an archive.

        A run that failed, or whose files have changed, is left out with a warning.

        Returns:
            The names of the runs that were added.
        """
        return add_runs(into, self._share(into))

    @abstractmethod
    def _share(self, into: Path) -> dict[str, Run]:
        """Write the plan into another folder, or add to the plan there; return the ended runs that
        have not begun there, by their names below it.
        """

    def without_begun(self, runs: Mapping[str, Run]) -> dict[str, Run]:
        """The ``runs``, by their names here, that have not begun here."""
        begun = self._begun() | self.collection.lines.keys()
        return {name: run for name, run in runs.items() if name not in begun}

    def verify(self) -> Iterator[tuple[Path, str]]:
        """Each file of the finished runs with what is wrong with it, empty if nothing is."""
        seen = set[Path]()  # runs may share a file
        for part in self.parts:
            for name in part.names:
                for path, problem in part.read(name).verify():
                    if path not in seen:
                        seen.add(path)
                        yield path, problem

    @property
    def parts(self) -> list[Folder]:
        """This folder and the table inside it, if any: for a search the one that trains its best
        trials again, for a tuned table the one that tries its learning rates.
        """
        return [self]

    def records(self) -> list[Record]:
        """A flat record for each run: what it is, its settings and its numbers, None where it has
        none yet.
        """
        return [self.record(run) for run in self.runs()]

    def record(self, run: Run) -> Record:
        """The record of a run; a pruned run has the perplexity and step at which it was pruned."""
        numbers = {name: getattr(run.result, name, None) for name in NUMBERS}
        if run.pruned is not None:
            numbers |= {"perplexity": run.pruned.perplexity, "steps": run.pruned.step}
        who, state = self._who(run), {"state": str(run.state)}
        # First for the order of the columns; again, as a run without a result has a seed too.
        return {**who, **self._settings(run), **state, **numbers, **who}

    def _who(self, run: Run) -> Record:
        return {"row": run.row, "seed": run.seed}

    def _settings(self, run: Run) -> Record:
        """The settings by which runs differ."""
        return {}

    def curves(self) -> list[Record]:
        """A flat record for each step that a run logged, with the columns of metrics.csv."""
        return [
            {**self._who(run), **dict.fromkeys(COLUMNS), **line}
            for run in self.look()
            for line in run.metrics
        ]


def copy_run(run: Run, target: Path) -> None:
    """Copy a run without its checkpoints; the target is either complete or does not exist."""
    with making(target) as part:
        part.mkdir(parents=True)
        for path in copied_files(run.files):
            copy_plain(path, part / path.name)


def collection_of(path: Path) -> Collection:
    """The runs of a folder that are lines. The runs of a table inside another folder, such as a
    search's, are lines of the outer folder.
    """
    if path.name in (CONFIRM, TUNING) and (path.parent / RUNS_FILE).is_file():
        return Collection(path.parent, below=f"{path.name}/")
    return Collection(path)
