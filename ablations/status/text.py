"""A status as plain text, without rich, whose import takes longer than ``status`` may."""

from __future__ import annotations

from collections.abc import Iterator

from ablations.status.model import ENDED, Host, Run, Status
from experiments.run.attempt import Failure
from experiments.run.measures import in_words
from experiments.run.progress import RunState
from transformer.formats import MISSING, count, duration, number, steps

# The order in which runs are shown.
ORDER = (
    RunState.RUNNING,
    RunState.FAILED,
    RunState.GIVEN_UP,
    RunState.STOPPED,
    RunState.WAITING,
    RunState.PRUNED,
    RunState.DONE,
)
_LOG_LINES = 10


def describe_all(status: Status) -> Iterator[str]:
    """One line in all, one for each host and each run, then the failures with their logs."""
    yield headline(status)
    if status.passed:
        yield status.passed
    for host in status.hosts:
        yield describe_host(host, status)
    for run in status.runs:
        yield f"  {describe(run, status)}"
    failed = [run for run in status.runs if run.failures and run.state != RunState.DONE]
    if failed:
        yield "failures:"
    for run in failed:
        for failure in run.failures:
            yield from (f"  {line}" for line in describe_failure(run, failure, _LOG_LINES))


def headline(status: Status) -> str:
    """How many runs are in each state, and the time until all have ended."""
    counts = status.counts
    parts = [f"{counts[RunState.DONE]} of {len(status.runs)} done"]
    parts += [
        f"{counts[state]} {state}" for state in ORDER if counts[state] and state != RunState.DONE
    ]
    if status.seconds_left is not None:
        parts.append(f"{duration(status.seconds_left)} left")
    elif not status.is_over and all(status.silent_for(run) for run in status.running):
        parts.append("the driver is starting" if status.is_starting else "nobody works on it")
    return f"{status.title}: {', '.join(parts)}"


def in_order(status: Status) -> list[Run]:
    """The runs by state, those in progress first."""
    return sorted(status.runs, key=lambda run: ORDER.index(run.state))


def folded(runs: list[Run]) -> str:
    """Runs for which there is no room, as counts."""
    states = [run.state for run in runs]
    counts = [f"{states.count(state)} {state}" for state in ORDER if state in states]
    return f"… and {', '.join(counts)}"


def describe_host(host: Host, status: Status) -> str:
    """How many runs a host has."""
    runs = f"{host.runs} run{'s' if host.runs > 1 else ''}"
    heard = MISSING if host.heard_at is None else f"{duration(max(0.0, status.at - host.heard_at))}"
    return f"{host.name}: {runs}, heard of {heard} ago"


def place(run: Run, width: int | None = None) -> str:
    """The host and its GPUs, such as ``node1:0-3``, cut to ``width``; UUIDs are abbreviated."""
    devices = run.devices
    first = devices[0] if devices and isinstance(devices[0], int) else 0
    is_range = len(devices) > 2 and devices == tuple(range(first, first + len(devices)))
    last = first + len(devices) - 1
    numbers = f"{first}-{last}" if is_range else ",".join(str(x)[:8] for x in devices)
    suffix = f":{numbers}" if numbers else ""
    host = run.host or ""
    if width is not None and len(host) + len(suffix) > width:
        host = f"{host[: max(1, width - len(suffix) - 1)]}…"
    return host + suffix


def at_step(run: Run) -> str:
    """The step, or in evaluation the line that is scored, such as ``1,200/100K``."""
    progress = run.progress
    if progress is None or not progress.step:
        return ""
    whole = f"/{steps(progress.max_steps)}" if progress.max_steps else ""
    return f"{progress.step:,}{whole}"


def stage(run: Run, silent: float | None) -> str:
    """The state of a run, or the stage of one in progress."""
    if silent is not None:
        return "silent"
    if run.state != RunState.RUNNING:
        return run.state
    return "starting" if run.progress is None else run.progress.stage


def describe(run: Run, status: Status) -> str:
    """One run in one line."""
    silent = status.silent_for(run)
    parts: list[str] = [run.state]
    if run.state == RunState.DONE:
        parts += [in_words(run.scores)]
        parts += [] if run.seconds is None else [duration(run.seconds)]
        return f"{run.name}: {', '.join(parts)}"
    progress = run.progress
    if progress is not None:
        if run.state == RunState.RUNNING and progress.stage != RunState.TRAIN:
            parts = [f"running ({progress.stage})"]
        unit = "line" if progress.stage == RunState.EVALUATE else "step"
        parts += [f"{unit} {text}"] if (text := at_step(run)) else []
        if run.state == RunState.RUNNING:
            parts += [] if progress.loss is None else [f"loss {number(progress.loss, 3)}"]
            speed = progress.tokens_per_second
            parts += [f"{count(speed)} tokens/s"] if speed else []
    parts += [f"on {text}"] if run.state not in ENDED and (text := place(run)) else []
    parts += [f"attempt {run.attempt}"] if run.attempt and run.attempt > 1 else []
    parts += [f"silent for {duration(silent)}"] if silent is not None else []
    left = run.seconds_left
    parts += [f"{duration(left)} left"] if left and silent is None else []
    return f"{run.name}: {', '.join(parts)}"


def describe_failure(run: Run, failure: Failure, lines: int) -> list[str]:
    """A failure with up to ``lines`` of the end of its log."""
    log = [f"    {line}" for line in failure.lines[-lines:]]
    return [f"{run.name}, attempt {failure.attempt}: {failure.reason}", *log]
