"""A snapshot of one run."""

from __future__ import annotations

import os
import re
import time
import warnings
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from datetime import datetime
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from experiments.records.attempt import Attempt, Failure, read_attempt
from experiments.records.checksums import check_unchanged, verify_files
from experiments.records.experiment import (
    CONFIG_FILE,
    PLACES_FILE,
    SOURCE_FILE,
    Experiment,
    load_experiment,
)
from experiments.records.outputs import COLUMNS, Sample, read_metrics, read_samples, read_speeds
from experiments.records.processes import is_running, process_of
from experiments.records.progress import (
    SILENT_SECONDS,
    Progress,
    RunState,
    printable,
    read_progress,
)
from experiments.records.result import PRUNED_FILE, RESULT_FILE, Result, load_result, valid_scores
from transformer.config import from_dict
from transformer.errors import InputError
from transformer.files import open_plain, read_json, within

if TYPE_CHECKING:
    from transformer.data.prepared import Manifest

LOG_FILE = "log.txt"
_LOG_BYTES = 65_536  # in which its last lines are looked for
_ATTEMPT = re.compile(r"\.attempt-(\d+)$")
_SEED = re.compile(r"/seed-(\d+)$")
_FAILED = (RunState.FAILED, RunState.DIVERGED, RunState.REFUSED, RunState.BLOCKED)

T = TypeVar("T")


def locate(stem: Path) -> Path:
    """The directory of the run ``stem``: its newest attempt, or ``stem`` itself if the run is
    finished or has not begun.
    """
    found = stem
    if not (stem / RESULT_FILE).exists():
        found = max(stem.parent.glob(f"{stem.name}.attempt-*"), key=attempt_number, default=stem)
    return within(found.parent, found.name)


def attempt_number(directory: Path) -> int:
    """The number in the name of an attempt's directory; 0 if there is none."""
    match = _ATTEMPT.search(directory.name)
    return int(match[1]) if match else 0


@dataclass(frozen=True, kw_only=True, slots=True)
class Pruned:
    """The step at which a trial was ended, and its perplexity there; None if not finite."""

    step: int
    perplexity: float | None


@dataclass(frozen=True, kw_only=True)
class Run:
    """A snapshot of one run: how its newest attempt stands, or how it ended; None means unknown.

    ``name`` is its path below the folder of its table or search, ``base/seed-1`` or
    ``trial-0003``, and ``directory`` where its files are. ``state`` is ``running``, ``failed``,
    ``given up``, ``stopped``, ``waiting``, ``done``, ``pruned`` or ``stale``. ``attempt`` is the
    newest one, ``progress`` the last report of any, and ``silent_seconds`` have passed since then,
    if that is too long for a run in progress. A finished run has a ``result``, one that a search
    ended early has ``pruned``; ``problem`` says why an ended run, such as a stale one, has neither.

    Large or rarely needed files are read on first use, from wherever the run is by then; a damaged
    one raises an InputError.
    """

    name: str
    directory: Path
    state: RunState = RunState.WAITING
    attempt: Attempt | None = None
    progress: Progress | None = None
    silent_seconds: float | None = None
    result: Result | None = None
    pruned: Pruned | None = None
    problem: str = ""

    @property
    def row(self) -> str:
        """The name of a table's row; empty for a trial."""
        return self.name.rpartition("/")[0]

    @property
    def seed(self) -> int | None:
        """The seed of a table's run, or of one that is finished."""
        if cell := _SEED.search(self.name):
            return int(cell[1])
        return None if self.result is None else self.result.seed

    @property
    def is_published(self) -> bool:
        """Whether its directory has the run's own name, not that of an attempt in progress."""
        return not attempt_number(self.directory)

    @property
    def is_live(self) -> bool:
        """Whether it is in progress and still reports."""
        return self.state == RunState.RUNNING and self.silent_seconds is None

    @property
    def is_given_up(self) -> bool:
        """Whether it has failed so often that it is not tried again."""
        return self.attempt is not None and self.attempt.given_up

    @property
    def failures(self) -> tuple[Failure, ...]:
        """The failures of its attempts, oldest first."""
        return self.attempt.failures if self.attempt else ()

    @property
    def report(self) -> Progress | None:
        """The last report of its newest attempt; for a pruned run, the step where it ended."""
        if self.state == RunState.PRUNED and self.pruned is not None:
            return Progress(stage=RunState.DONE, step=self.pruned.step)
        began = self.attempt.started_at if self.attempt else 0.0
        return None if self.progress is None or self.progress.updated_at < began else self.progress

    @property
    def scores(self) -> dict[str, float]:
        """The scores of an ended run on the validation set, by measure."""
        if self.result is not None:
            return valid_scores(self.result)
        found = self.pruned and self.pruned.perplexity
        return {} if found is None else {"perplexity": found}

    @property
    def is_only_scored(self) -> bool:
        """Whether it was not trained itself, but scored with the training of another run."""
        return self.attempt is not None and bool(self.attempt.trained_in)

    @property
    def diverged_at(self) -> int | None:
        """The step at which its training ended, if the gradient was not finite there."""
        return None if self.result is None else self.result.diverged_at

    @property
    def is_whole(self) -> bool:
        """Whether it took all steps itself, so that its time predicts that of other runs."""
        return not self.is_only_scored and self.diverged_at is None

    @property
    def seconds(self) -> float | None:
        """Seconds from start to end; of training only if it took several attempts or is a copy."""
        result, attempt = self.result, self.attempt
        if result is None or attempt is None or attempt.number > 1:
            return result and result.train_seconds
        took = datetime.fromisoformat(result.finished_at).timestamp() - attempt.started_at
        return max(0.0, took) if self.is_only_scored else max(result.train_seconds, took)

    @property
    def has_ended(self) -> bool:
        """Whether it is at its end and its directory has its own name: no attempt continues."""
        return self.is_at_end and self.is_published

    @property
    def is_at_end(self) -> bool:
        """Whether it is finished, pruned or stale; if the file that says so is broken, a warning
        names it.
        """
        if self.state == RunState.STALE:
            return True
        if self.problem:
            text = f"left out, and done again by the next run: {self.problem}"
            warnings.warn(text, stacklevel=2)
        return self.result is not None or self.pruned is not None

    @cached_property
    def experiment(self) -> Experiment | None:
        """The experiment that is run; None before it has begun."""
        has_begun = (self.files / CONFIG_FILE).is_file()
        return self._read(load_experiment) if has_begun else None

    @cached_property
    def data(self) -> Manifest | None:
        """The data that it began with; None before its first step."""
        from experiments.records.data import recorded_data  # which imports sentencepiece

        return self._read(recorded_data)

    @cached_property
    def source(self) -> Mapping[str, Any] | None:
        """The source of the user's own classes that it began with; None without one."""
        return self._find_json(SOURCE_FILE)

    @cached_property
    def source_places(self) -> Mapping[str, Any]:
        """Where that source was on this machine, by module."""
        return self._find_json(PLACES_FILE) or {}

    def _find_json(self, name: str) -> Mapping[str, Any] | None:
        """The content of an optional file; None if there is none, or it is damaged."""
        with suppress(InputError):
            if os.path.lexists(self.files / name):
                return self._read(lambda directory: read_json(directory / name))
        return None

    @cached_property
    def metrics(self) -> Sequence[Mapping[str, float]]:
        """The logged metrics of each step, by the names of ``COLUMNS``; empty ones are left out."""
        found: list[Mapping[str, float]] = []
        for step, *texts in self._read(read_metrics):
            named = zip(COLUMNS[1:], texts, strict=True)
            values = {name: float(text) for name, text in named if text}
            found.append({"step": int(step), **values})
        return found

    @property
    def curve(self) -> dict[int, float]:
        """Perplexity on the validation set by step."""
        return self._by_step("valid_perplexity")

    @property
    def losses(self) -> dict[int, float]:
        """The training loss by step."""
        return self._by_step("loss")

    @property
    def learning_rates(self) -> dict[int, float]:
        """The learning rate by step."""
        return self._by_step("learning_rate")

    @property
    def gradient_norms(self) -> dict[int, float]:
        """The norm of the gradient by step, before it is clipped."""
        return self._by_step("gradient_norm")

    @cached_property
    def speeds(self) -> dict[int, float]:
        """Target tokens per second by step, each since the step logged before; empty for copies and
        for runs of earlier versions.
        """
        return {int(step): float(speed) for step, speed in self._read(read_speeds) if speed}

    def _by_step(self, name: str) -> dict[int, float]:
        return {int(line["step"]): line[name] for line in self.metrics if name in line}

    @cached_property
    def samples(self) -> Sequence[Sample]:
        """The best and worst translations of the validation set, best first."""
        return self._read(lambda directory: read_samples(directory, "valid"))

    @property
    def process(self) -> str:
        """The name of its newest process; empty if it is not known."""
        return process_of(self.files)

    def log(self, count: int) -> list[str]:
        """The last lines of its output."""
        return self._read(lambda directory: last_log_lines(directory, count))

    @property
    def files(self) -> Path:
        """The folder that has its files now."""
        return locate(self.directory.with_name(_ATTEMPT.sub("", self.directory.name)))

    def check(self) -> None:
        """Check that the files of a finished run, all but its checkpoints, are unchanged.

        Raises:
            InputError: if not.
        """
        check_unchanged(self.directory)

    def verify(self) -> Iterator[tuple[Path, str]]:
        """Each file of a finished run, and what is wrong with it; empty if nothing is."""
        return verify_files(self.directory)

    def _read(self, read: Callable[[Path], T]) -> T:
        """Read a file, again if the directory is renamed meanwhile, as when a run ends."""
        while True:
            directory = self.files
            try:
                return read(directory)
            except (InputError, OSError):
                if self.files == directory:
                    raise


def read_run(path: Path, name: str | None = None) -> Run:
    """The run in the folder ``path``, or in that of its newest attempt.

    Args:
        name: by default, that of the folder
    """
    while True:
        directory = locate(path)
        run = _read_run(directory, name or path.name)
        if directory == path or directory.exists():  # nobody has renamed it meanwhile
            return run


def _read_run(directory: Path, name: str) -> Run:
    result, pruned, problem = _read_end(directory)
    run = Run(name=name, directory=directory, result=result, pruned=pruned, problem=problem)
    if run.is_published and pruned is not None:
        return replace(run, state=RunState.PRUNED)
    if run.is_published and result is not None:
        return replace(run, state=RunState.DONE, attempt=read_attempt(directory))
    run = replace(run, attempt=read_attempt(directory), progress=read_progress(directory))
    run = replace(run, state=_state(run))
    if run.state != RunState.RUNNING:
        return run
    began = run.attempt.started_at if run.attempt else 0.0
    silent = time.time() - (run.report.updated_at if run.report else began)
    return replace(run, silent_seconds=silent if silent > SILENT_SECONDS else None)


def _read_end(directory: Path) -> tuple[Result | None, Pruned | None, str]:
    """The result, or where the run was pruned, or what is wrong with the file that says so."""
    path = directory / PRUNED_FILE
    try:
        if (result := load_result(directory)) is not None:
            return result, None, ""
        if os.path.lexists(path):
            return None, from_dict(Pruned, read_json(path), str(path)), ""
    except InputError as error:
        if not isinstance(error.__cause__, FileNotFoundError):  # or it has just been renamed
            return None, None, str(error)
    return None, None, ""


def _state(run: Run) -> RunState:
    """The state of a run that has not ended, by the report of its newest attempt."""
    if run.report is None and run.attempt is None:
        return RunState.WAITING
    if run.is_given_up:
        return RunState.GIVEN_UP
    stage = run.report.stage if run.report else None
    if stage in _FAILED:
        return RunState.FAILED
    # Another attempt must follow if the result is unreadable or the supervisor died.
    unreadable = stage == RunState.DONE and run.is_published
    is_gone = run.attempt is not None and is_running(run.attempt.worker) is False
    if stage == RunState.STOPPED or unreadable or is_gone:
        return RunState.STOPPED
    return RunState.RUNNING


def last_log_lines(directory: Path, count: int, *, start: int = 0) -> list[str]:
    """The last non-empty lines of a run's log, from the byte ``start``; empty without a log."""
    try:
        with open_plain(directory / LOG_FILE) as log:
            size = log.seek(0, os.SEEK_END)
            log.seek(max(start, size - _LOG_BYTES))
            text = (printable(line.decode(errors="replace").rstrip()) for line in log)
            return list(deque(filter(None, text), maxlen=count))
    except (InputError, OSError):
        return []
