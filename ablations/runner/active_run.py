"""One attempt at a cell that runs here: its directory, its process, and what becomes of both."""

from __future__ import annotations

import dataclasses
import signal
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ablations.formats import duration
from ablations.formats import number as figure
from ablations.runner import identity
from ablations.runner.attempts import (
    Verdict,
    elapsed,
    newest,
    note_failure,
    number,
    publish,
    read_result,
    set_aside_broken,
    take_over,
)
from ablations.runner.child import Child, Start, start_child
from ablations.runner.endings import Ending
from ablations.runner.machine import Slot
from ablations.runner.queue import Claim
from ablations.runner.work import Work
from experiments.run.attempt import Attempt, read_attempt, wandb_id, write_attempt
from experiments.run.data import share_data
from experiments.run.experiment import claim as claim_directory
from transformer.config import to_dict

_LOG_LINES = 10


class Begin:
    """Begins attempts at the cells of ``work``, with processes of ``start``; after ``retries``
    more than the first that end with an exception, a cell is given up.
    """

    def __init__(self, work: Work, start: Start, retries: int) -> None:
        self._work, self._start, self._retries = work, start, retries
        self._worker = identity.own_name()

    def __call__(self, slot: Slot, claim: Claim) -> Run | None:
        """The run; None if another process has taken the cell.

        Raises:
            InputError: if the directory belongs to another configuration.
        """
        stem = self._work.root / claim.name
        directory = take_over(stem, lambda: self._work.is_done(stem))
        if directory is None:
            return None
        try:
            broken = set_aside_broken(directory)
            attempt = self._attempt(directory, slot, claim)
            claim_directory(directory, claim.experiment)
            share_data(directory, self._others(directory))
            write_attempt(directory, attempt)
            child = start_child(directory, slot, self._start)
        except FileNotFoundError:
            if directory.exists():
                raise
            return None  # this worker was paused just here, for so long that another took it
        return Run(claim, attempt, child, self._work, self._retries, broken)

    def _others(self, directory: Path) -> Iterator[Path]:
        """The directories of the fleet's other cells, as far as there are any."""
        for name in self._work.names:
            found = newest(self._work.root / name)
            if found is not None and found != directory:
                yield found

    def _attempt(self, directory: Path, slot: Slot, claim: Claim) -> Attempt:
        before = read_attempt(directory)
        attempt = Attempt(
            study=self._work.study,
            cell=claim.name,
            number=number(directory),
            worker=self._worker,
            host=identity.host_of(self._worker),
            devices=slot.devices,
            ranks=slot.ranks,
            started_at=time.time(),
        )
        if before is None:
            return attempt
        return dataclasses.replace(
            attempt,
            failures=before.failures,
            wandb_ids=_wandb_ids(directory, before),
            kills=before.kills,
            furthest=before.furthest,
        )


def _wandb_ids(directory: Path, before: Attempt) -> tuple[str, ...]:
    """The W&B runs of all earlier attempts; one that never came so far has none."""
    last = wandb_id(directory)
    return before.wandb_ids if last is None else (*before.wandb_ids, last)


@dataclass(eq=False, slots=True)
class Run:
    """An attempt under way. ``broken`` are files of earlier attempts that were set aside, as they
    could not be read; ``look_at`` is when it is to be looked at again, by the monotonic clock.
    """

    claim: Claim
    attempt: Attempt
    child: Child
    work: Work
    retries: int
    broken: Sequence[str]
    is_lost: bool = False
    is_pruned: bool = False
    look_at: float = 0.0

    @property
    def directory(self) -> Path:
        """Where it runs."""
        return self.child.directory

    def ending(self) -> Ending | None:
        """How its process ended, None while it runs."""
        return self.child.ending()

    def facts(self) -> Mapping[str, Any]:
        """What the storage is told of it, for those who do not see the directory."""
        progress = self.child.progress()
        return {
            "attempt": self.attempt.number,
            "devices": list(self.attempt.devices),
            "ranks": self.attempt.ranks,
            "progress": None if progress is None else to_dict(progress),
        }

    def is_newest(self) -> bool:
        """Whether no other attempt has taken the cell over."""
        return newest(self.work.root / self.claim.name) == self.directory

    def lose(self) -> None:
        """End it: the cell is another's now."""
        if not self.is_lost:
            self.is_lost = True
            self.child.send(signal.SIGTERM)

    def prune(self) -> None:
        """End it for its poor figures."""
        if not self.is_pruned:
            self.is_pruned = True
            self.child.send(signal.SIGTERM)

    def finish(self) -> bool:
        """Make what the process has left the cell's end; False if it is none."""
        with suppress(FileNotFoundError):  # another attempt has taken the cell over
            if not self.work.is_done(self.directory):
                self._conclude()
        done = self.work.is_done(self.directory)
        return done and publish(self.directory, self.work.root / self.claim.name)

    def _conclude(self) -> None:
        """Leave what comes of a run that ended without a result, where that is an end."""
        if self.ending() == "diverged":
            progress = self.child.progress()
            self.work.diverge(self.directory, progress.step if progress else 0)
        elif self.is_pruned and (reports := self.work.reports(self.directory)):
            self.work.prune(self.directory, max(reports), reports[max(reports)])

    def fail(self) -> Verdict:
        """Write down that it ended with an exception, and whether that was the last attempt."""
        lines, progress = self.child.last_lines(_LOG_LINES), self.child.progress()
        if progress is not None and progress.message and not self.child.was_killed:
            reason = progress.message
        else:
            end = self.ending() == "finished"
            reason = "it left no result" if end else self.child.describe_exit()
            reason = f"{reason}: {lines[-1]}" if lines else reason
        # A training that diverged would do so again, as it is the same each time.
        retries = 0 if self.ending() == "diverged" else self.retries
        return note_failure(
            self.directory, reason, lines, killed=self.child.was_killed, retries=retries
        )

    def last_words(self) -> str:
        """The last line of its log."""
        return (self.child.last_lines(1) or ["it refused its input"])[0]

    def describe_start(self) -> str:
        """How it began, in words."""
        number = self.attempt.number
        aside = [f"; {name} cannot be read, and is now {name}.broken" for name in self.broken]
        return ("started" if number == 1 else f"started (attempt {number})") + "".join(aside)

    def describe_end(self) -> str:
        """How it ended, in words, once it has."""
        stem = self.work.root / self.claim.name
        result = read_result(stem)
        if result is None:
            how = "pruned" if self.is_pruned else "ended without figures"
            return f"{how} after {duration(self.child.elapsed)}"
        return (
            f"finished in {duration(elapsed(stem, result))}, perplexity "
            f"{figure(result.perplexity, 2)}, BLEU {figure(result.bleu, 1)}"
        )
