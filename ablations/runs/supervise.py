"""Supervise attempts at runs on this machine."""

from __future__ import annotations

import signal
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor, wait
from dataclasses import dataclass, replace
from enum import IntEnum
from pathlib import Path

from ablations.folder.base import collection_of
from ablations.runs import attempts, process
from ablations.runs.process import Job, Place, RunProcess, Start, signal_group
from ablations.runs.shared import take_divergence, take_training
from experiments.records.attempt import write_attempt
from experiments.records.data import share_data
from experiments.records.experiment import DATA_FILE
from experiments.records.ownership import claim
from experiments.records.processes import PROCESS_FILE, is_running, name_of, pid_of, process_of
from experiments.records.progress import GRACE_SECONDS, RunState, final_state, read_progress
from experiments.records.result import PRUNED_FILE, in_words
from experiments.records.run import LOG_FILE, Run, last_log_lines, locate, read_run
from transformer.errors import InputError
from transformer.files import open_plain, remove_unfinished, rename, write_atomically
from transformer.formats import duration

_POLL_SECONDS = 0.1
_LOG_LINES = 10


class Request(IntEnum):
    """What the driver asks of an attempt."""

    CONTINUE = 0
    STOP = 1  # after a checkpoint
    KILL = 2


@dataclass(frozen=True, kw_only=True, slots=True)
class AttemptEnd:
    """How an attempt ended: ``DONE`` or ``PRUNED`` (published as ``ended``), ``STOPPED``,
    ``FAILED`` (to be tried again), ``GIVEN_UP``, ``REFUSED`` (given up too) or ``BLOCKED`` (left to
    the next command). ``text`` is for the user; ``reason`` says why it was refused or blocked.
    """

    state: RunState
    text: str
    ended: Run | None = None
    reason: str = ""


class LocalExecutor:
    """Runs on this machine, in its ``places``; see :class:`ablations.runs.driver.Executor`."""

    def __init__(self, places: Sequence[Place], start: Start | None = None) -> None:
        process.forget_rank()
        self._places, self._start_process = places, start or process.fork
        self._request = Request.CONTINUE
        self._threads = ThreadPoolExecutor(max_workers=len(places))
        self._attempts: dict[str, Future[AttemptEnd]] = {}
        gpus = len(places[0].devices)
        if gpus > 1:
            self.where = f"{gpus} GPUs each"
        else:
            self.where = "the GPU" if gpus else "the CPU"

    def places(self) -> Sequence[Place]:
        return self._places

    def start(self, job: Job, place: Place) -> None:
        self._attempts[job.name] = self._threads.submit(
            supervise, job, place, self._start_process, lambda: self._request
        )

    def ended(self) -> Sequence[tuple[str, AttemptEnd]]:
        done = [name for name, attempt in self._attempts.items() if attempt.done()]
        return [(name, self._attempts.pop(name).result()) for name in done]

    def stop(self, request: Request) -> None:
        self._request = max(self._request, request)

    def close(self) -> None:
        """Wait for the remaining attempts, and kill those that do not end."""
        wait(self._attempts.values(), GRACE_SECONDS)
        self.stop(Request.KILL)
        self._threads.shutdown()


def supervise(job: Job, place: Place, start: Start, request: Callable[[], Request]) -> AttemptEnd:
    """Carry out the next attempt at a run, and publish the run if it has ended.

    Args:
        request: what the driver asks of the attempt; called several times a second
    """
    stem = job.root / job.name
    notes = _end_orphan(locate(stem), request)
    if (published := _publish(locate(stem), job.root, job.name, "ended early")) is not None:
        return published  # an earlier supervisor was killed before it could do so
    if request():
        return AttemptEnd(state=RunState.STOPPED, text="stopped")
    try:
        begun = _begin(job, place, start, notes)
    except InputError as error:
        return _blocked(str(error))
    if begun is None:
        return AttemptEnd(state=RunState.STOPPED, text="another driver was first")
    end = _end(job, begun, _wait(begun, request))
    return replace(end, text="; ".join([end.text, *notes]))


def _end_orphan(directory: Path, request: Callable[[], Request]) -> list[str]:
    """End the process that an earlier attempt may have left here; return notes for the user.

    It ends by itself after a checkpoint, since its driver is gone; a signal now would count as the
    second one and end it at once. It is killed if it takes too long. A process on another machine,
    or of another directory, cannot be reached, but can write nothing once this directory is
    renamed.
    """
    name, deadline = process_of(directory), time.monotonic() + GRACE_SECONDS
    if not is_running(name):
        return []
    _signal_orphan(directory, name, signal.SIGCONT)  # a paused process would not notice
    while is_running(name) and request() < Request.KILL:
        if time.monotonic() > deadline and not _signal_orphan(directory, name, signal.SIGKILL):
            return []
        time.sleep(_POLL_SECONDS)
    return ["the process of an earlier attempt was ended first"]


def _signal_orphan(directory: Path, name: str, number: signal.Signals) -> bool:
    """Signal the process ``name`` if it writes the log in ``directory``; return whether it does.

    The name comes from a file, which may be damaged or copied from another directory.
    """
    pid = pid_of(name)
    try:
        is_here = Path(f"/proc/{pid}/fd/1").samefile(directory / LOG_FILE)
    except OSError:
        return False
    if is_here and pid is not None:
        signal_group(pid, number)
    return is_here


def _publish(directory: Path, root: Path, name: str, how: str) -> AttemptEnd | None:
    """Give an ended run its final name; None if it has not ended, or another attempt took it.

    Args:
        how: what the user reads of a pruned run
    """
    stem = root / name
    run = read_run(directory, name)
    if not run.is_at_end:
        return None
    _ = run.curve  # read here: a driver on another machine may not see the file yet
    if run.result is not None:  # it may have finished before the pruning reached it
        (directory / PRUNED_FILE).unlink(missing_ok=True)
    if directory != stem:
        try:
            rename(directory, stem)
        except OSError as error:
            if directory.exists():
                return _blocked(f"{directory} has ended, but cannot be renamed to {stem}: {error}")
            return None
    if run.result is None or run.seconds is None:
        return AttemptEnd(state=RunState.PRUNED, text=how, ended=run)
    text = f"finished in {duration(run.seconds)}, {in_words(run.scores)}"
    if run.diverged_at is not None:
        text = f"diverged at step {run.diverged_at:,} after {duration(run.seconds)}"
    return AttemptEnd(state=RunState.DONE, text=text, ended=run)


@dataclass(frozen=True, slots=True)
class _Begun:
    """An attempt's process, started at ``started_at`` (seconds since the epoch); its part of the
    log begins at byte ``log_start``.
    """

    directory: Path
    process: RunProcess
    started_at: float
    log_start: int


def _begin(job: Job, place: Place, start: Start, notes: list[str]) -> _Begun | None:
    """Take over the run's directory and start its process; None if another driver was first."""
    directory = attempts.take_over(job.root / job.name)
    if directory is None:
        return None
    try:
        remove_unfinished(directory)
        broken = attempts.set_aside_broken(directory)
        notes += [f"{name} cannot be read, and is now {name}.broken" for name in broken]
        if attempts.has_other_settings(directory, job.experiment):
            directory = attempts.start_over(job.root, job.name, directory)
            notes.append("trained from the start, as its settings or its class have changed")
        record = attempts.next_attempt(directory, job.name, job.driver, place.devices, place.ranks)
        claim(directory, job.experiment)
        share_data(directory, _others(job, directory))
        others = [locate(job.root / name) for name in job.shares]
        if source := take_training(directory, job.experiment.config, others):
            record = replace(record, trained_in=source.relative_to(job.root).as_posix())
            notes.append(f"scored with the training of {record.trained_in}")
        elif source := take_divergence(directory, job.experiment, others):
            record = replace(record, trained_in=source.relative_to(job.root).as_posix())
            notes.append(f"its training is that of {record.trained_in}")
        write_attempt(directory, record)
        with open_plain(directory / LOG_FILE, "ab") as log:
            log_start = log.tell()
        started_at = time.time()
        run = start(directory, job, place)
        write_atomically(directory / PROCESS_FILE, name_of(run.pid))
    except FileNotFoundError:
        if directory.exists():
            raise
        return None  # this process was paused so long that another one took the run over
    return _Begun(directory, run, started_at, log_start)


def _others(job: Job, directory: Path) -> Iterator[Path]:
    """The directories of other runs that have recorded their data; those that are lines of
    ``runs.jsonl`` come last.
    """
    depth = len(Path(job.name).parts)
    for path in job.root.glob("/".join(["*"] * depth + [DATA_FILE])):
        if path.parent != directory:
            yield path.parent
    collection = collection_of(job.root)
    for name in collection.lines:
        yield collection.run(name).files


def _wait(begun: _Begun, request: Callable[[], Request]) -> Request:
    """Wait for the process, pass on what the driver asks, and return the last request.

    To prune a trial, the driver leaves the step in its directory.
    """
    sent = Request.CONTINUE
    while begun.process.poll() is None:
        wanted = request()
        if not sent and (begun.directory / PRUNED_FILE).exists():
            wanted = max(wanted, Request.STOP)
        if wanted > sent:
            sent = wanted
            number = signal.SIGKILL if wanted == Request.KILL else signal.SIGTERM
            signal_group(begun.process.pid, number)
        time.sleep(_POLL_SECONDS)
    return sent


def _end(job: Job, begun: _Begun, sent: Request) -> AttemptEnd:
    """Publish the run if it has ended; otherwise record why its process stopped."""
    directory, code = begun.directory, begun.process.poll()
    assert code is not None
    state = final_state(directory, code, begun.started_at)
    how = f"ended early after {duration(time.time() - begun.started_at)}"
    if (published := _publish(directory, job.root, job.name, how)) is not None:
        return published
    if not directory.exists():
        text = "its directory was removed, or taken over by another attempt"
        return AttemptEnd(state=RunState.STOPPED, text=text)
    lines = last_log_lines(directory, _LOG_LINES, start=begun.log_start)
    if sent and state != RunState.REFUSED:
        kept = " after a checkpoint" if state == RunState.STOPPED else ""
        return AttemptEnd(state=RunState.STOPPED, text=f"stopped{kept}")
    reason = _reason(begun, state, code, lines)
    if state == RunState.BLOCKED:
        return _blocked(reason)
    # A run that stopped although nobody asked it to may do so each time, so it counts as a kill.
    killed = code == -signal.SIGKILL or state == RunState.STOPPED
    # A run that was refused would be refused again.
    retries = 0 if state == RunState.REFUSED else job.retries
    end = _failed(directory, reason, lines, killed=killed, retries=retries)
    if state != RunState.REFUSED:
        return end
    return AttemptEnd(state=state, text=f"refused, {reason}; given up", reason=reason)


def _blocked(reason: str) -> AttemptEnd:
    """The end of an attempt that is left to a later command."""
    text = f"{reason}; left for now"
    return AttemptEnd(state=RunState.BLOCKED, text=text, reason=reason)


def _reason(begun: _Begun, state: RunState, code: int, lines: Sequence[str]) -> str:
    """Why the process failed: its own message, or else its exit code and last line of output."""
    killed, progress = code == -signal.SIGKILL, read_progress(begun.directory)
    if state == RunState.STOPPED:
        return "a signal from elsewhere, or its own code, stopped it"
    if progress and progress.updated_at >= begun.started_at and progress.message and not killed:
        return progress.message
    if state in (RunState.REFUSED, RunState.BLOCKED):  # such as by a full disk
        return lines[-1] if lines else "it refused its input"
    if state == RunState.DONE:
        how = "it left no result"
    elif code >= 0:
        how = f"exit code {code}"
    elif killed:
        how = "killed by SIGKILL (out of memory?)"
    else:
        how = f"killed by {_signal_name(-code)}"
    return ": ".join([how, *lines[-1:]])


def _signal_name(number: int) -> str:
    try:
        return signal.Signals(number).name
    except ValueError:  # most real-time signals have no name
        return f"signal {number}"


def lost(job: Job, reason: str) -> AttemptEnd:
    """The end of an attempt whose machine was lost."""
    directory = locate(job.root / job.name)
    return _failed(directory, reason, [], killed=True, retries=job.retries)


def _failed(
    directory: Path, reason: str, lines: Sequence[str], *, killed: bool, retries: int
) -> AttemptEnd:
    """Record why the attempt in ``directory`` failed, and whether the run is given up."""
    final = attempts.record_failure(directory, reason, lines, killed=killed, retries=retries)
    then = "given up" if final else "it is tried again"
    text = "\n    ".join([f"failed, {reason}; {then}", *lines])
    return AttemptEnd(state=RunState.GIVEN_UP if final else RunState.FAILED, text=text)
