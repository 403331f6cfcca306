"""One attempt at a run that is in progress here: its directory, its process and how both end."""

from __future__ import annotations

import dataclasses
import signal
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

from ablations.runner import identity
from ablations.runner.attempts import (
    Verdict,
    elapsed,
    newest,
    number,
    publish,
    read_result,
    record_failure,
    set_aside_broken,
    take_over,
)
from ablations.runner.machine import Slot
from ablations.runner.process import (
    LOG_FILE,
    PROCESS_FILE,
    RunProcess,
    last_log_lines,
    signal_group,
)
from ablations.runner.queue import Claim
from ablations.runner.run_set import RunSet
from experiments.run.attempt import Attempt, read_attempt, wandb_id, write_attempt
from experiments.run.data import share_data
from experiments.run.experiment import claim as claim_directory
from experiments.run.measures import in_words, valid_scores
from experiments.run.progress import Progress, RunState, final_state, read_progress
from transformer.config import to_dict
from transformer.formats import duration

_LOG_LINES = 10


class Start(Protocol):
    """Starts a run's process: :func:`ablations.runner.process.start`, or a test's stand-in."""

    def __call__(
        self, directory: Path, *, devices: tuple[int | str, ...], ranks: int
    ) -> RunProcess: ...


@dataclass(eq=False, slots=True)
class ActiveRun:
    """An attempt in progress.

    ``retries`` is how often a failed run is tried again; ``broken`` are unreadable files of earlier
    attempts that were set aside; ``log_start`` is where this attempt's part of the log begins. The
    process was started at ``started_at``, in seconds since the epoch, ``clock_start`` of the
    monotonic clock. ``is_lost`` once another attempt has the run.
    """

    claim: Claim
    slot: Slot
    run_set: RunSet
    retries: int
    directory: Path
    attempt: Attempt
    process: RunProcess
    broken: Sequence[str]
    log_start: int
    started_at: float
    clock_start: float
    is_lost: bool = False
    is_pruned: bool = False

    def state(self) -> RunState | None:
        """How its process ended; None while it runs."""
        code = self.process.poll()
        return None if code is None else final_state(self.directory, code, self.started_at)

    def progress(self) -> Progress | None:
        """How far this attempt is; None while there is only an earlier one's progress."""
        progress = read_progress(self.directory)
        return progress if progress and progress.updated_at >= self.started_at else None

    def attributes(self) -> Mapping[str, Any]:
        """What the storage shows to those who cannot see the directory."""
        progress = self.progress()
        return {
            "attempt": self.attempt.number,
            "devices": list(self.attempt.devices),
            "ranks": self.attempt.ranks,
            "progress": None if progress is None else to_dict(progress),
        }

    def is_newest(self) -> bool:
        """Whether no other attempt has taken the run over."""
        return newest(self.run_set.root / self.claim.name) == self.directory

    def send(self, number: signal.Signals) -> None:
        """Signal the process and all that it started."""
        signal_group(self.process.pid, number)

    def lose(self) -> None:
        """Stop: another worker has the run now."""
        if not self.is_lost:
            self.is_lost = True
            self.send(signal.SIGTERM)

    def prune(self) -> None:
        """Stop: its values are too poor to continue."""
        if not self.is_pruned:
            self.is_pruned = True
            self.send(signal.SIGTERM)

    def finish(self) -> bool:
        """Make what the process left the run's end; False if it left none, or is not newest."""
        if not self.run_set.is_done(self.directory):
            self._record_early_end()
        done = self.run_set.is_done(self.directory)
        return done and publish(self.directory, self.run_set.root / self.claim.name)

    def _record_early_end(self) -> None:
        if self.state() == RunState.DIVERGED:
            progress = self.progress()
            self.run_set.diverge(self.directory, progress.step if progress else 0)
        elif self.is_pruned and (reports := self.run_set.reports(self.directory)):
            self.run_set.prune(self.directory, max(reports), reports[max(reports)])

    def fail(self) -> Verdict:
        """Record why it failed, and whether the run is given up."""
        state, progress = self.state(), self.progress()
        lines = last_log_lines(self.directory, _LOG_LINES, start=self.log_start)
        killed = self.process.returncode == -signal.SIGKILL
        if progress is not None and progress.message and not killed:
            reason = progress.message
        else:
            reason = "it left no result" if state == RunState.DONE else self._describe_exit()
            reason = f"{reason}: {lines[-1]}" if lines else reason
        # Training is deterministic, so one that diverged would diverge again.
        retries = 0 if state == RunState.DIVERGED else self.retries
        return record_failure(self.directory, reason, lines, killed=killed, retries=retries)

    def _describe_exit(self) -> str:
        code = self.process.returncode or 0
        if code >= 0:
            return f"exit code {code}"
        hint = " (out of memory?)" if code == -signal.SIGKILL else ""
        return f"killed by {signal.Signals(-code).name}{hint}"

    def refusal(self) -> str:
        """Why its input was refused: the last line of its log."""
        lines = last_log_lines(self.directory, 1, start=self.log_start)
        return (lines or ["it refused its input"])[0]

    def describe_start(self) -> str:
        """Say which attempt it is, and which files were set aside."""
        attempt = self.attempt.number
        aside = [f"; {name} cannot be read, and is now {name}.broken" for name in self.broken]
        return ("started" if attempt == 1 else f"started (attempt {attempt})") + "".join(aside)

    def describe_end(self) -> str:
        """Say how it ended, once it is published."""
        stem = self.run_set.root / self.claim.name
        result = read_result(stem)
        if result is None:
            how = "pruned" if self.is_pruned else "ended without figures"
            return f"{how} after {duration(time.monotonic() - self.clock_start)}"
        return f"finished in {duration(elapsed(stem, result))}, {in_words(valid_scores(result))}"


def begin_attempt(
    claim: Claim, slot: Slot, run_set: RunSet, start: Start, retries: int
) -> ActiveRun | None:
    """Take over the directory of a claimed run and start its process.

    Returns:
        The run; None if another process has taken it.

    Raises:
        InputError: if the directory belongs to another configuration.
    """
    stem = run_set.root / claim.name
    directory = take_over(stem, lambda: run_set.is_done(stem))
    if directory is None:
        return None
    try:
        broken = set_aside_broken(directory)
        attempt = _next_attempt(directory, slot, claim, run_set.study)
        claim_directory(directory, claim.experiment)
        share_data(directory, _other_runs(run_set, directory))
        write_attempt(directory, attempt)
        log = directory / LOG_FILE
        log_start = log.stat().st_size if log.exists() else 0
        started_at, clock_start = time.time(), time.monotonic()
        process = start(directory, devices=slot.devices, ranks=slot.ranks)
        (directory / PROCESS_FILE).write_text(identity.name_of(process.pid), encoding="utf-8")
    except FileNotFoundError:
        if directory.exists():
            raise
        return None  # this worker was paused here for so long that another one took the run
    return ActiveRun(
        claim=claim,
        slot=slot,
        run_set=run_set,
        retries=retries,
        directory=directory,
        attempt=attempt,
        process=process,
        broken=broken,
        log_start=log_start,
        started_at=started_at,
        clock_start=clock_start,
    )


def _other_runs(run_set: RunSet, directory: Path) -> Iterator[Path]:
    """The directories of the other runs that have begun."""
    for name in run_set.names:
        found = newest(run_set.root / name)
        if found is not None and found != directory:
            yield found


def _next_attempt(directory: Path, slot: Slot, claim: Claim, study: str) -> Attempt:
    worker = identity.own_name()
    attempt = Attempt(
        study=study,
        cell=claim.name,
        number=number(directory),
        worker=worker,
        host=identity.host_of(worker),
        devices=slot.devices,
        ranks=slot.ranks,
        started_at=time.time(),
    )
    before = read_attempt(directory)
    if before is None:
        return attempt
    tracked = wandb_id(directory)  # None if the attempt before ended too early to be tracked
    return dataclasses.replace(
        attempt,
        failures=before.failures,
        wandb_ids=before.wandb_ids if tracked is None else (*before.wandb_ids, tracked),
        kills=before.kills,
        furthest=before.furthest,
    )
