"""Show a status in a terminal."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path

from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.table import Table
from rich.text import Text

from ablations.status.status import ENDED, DirectoryReader, Status
from experiments.records.progress import RunState
from experiments.records.result import MEASURES
from experiments.records.run import Run
from transformer.files import to_json
from transformer.formats import duration, number, steps

_LIVE_SECONDS = 1.0
_PLAIN_SECONDS = 30.0
_PATIENCE = 20  # from reading to reading, in durations of one: thousands of runs take long
_WIDE = 500  # columns for output that is not a terminal
# The order in which runs are shown, and the mark of each state.
_MARKS = {
    RunState.RUNNING: "live",
    RunState.FAILED: "bad",
    RunState.GIVEN_UP: "bad",
    RunState.STOPPED: "warn",
    RunState.STALE: "warn",
    RunState.WAITING: "",
    RunState.PRUNED: "",
    RunState.DONE: "done",
}
_SEPARATOR = " · "
_COLOURS = {"bad": "red", "warn": "yellow"}


def heads(status: Status) -> tuple[str, ...]:
    """The heads of the columns of :func:`as_text`."""
    scores = describe_scores(status)
    step = f"step/{scores.replace(' ', '')}" if scores else "step"  # as narrow as its cells
    return "run", "state", step, "loss", "tok/s", "on", "try", "left/took"


def describe_scores(status: Status) -> str:
    """The names of the scores of finished runs, ``PPL · BLEU``; empty before the first one."""
    names = {name: None for run in status.runs if run.state == RunState.DONE for name in run.scores}
    return _SEPARATOR.join(MEASURES[name].short for name in names)


def as_text(run: Run, status: Status) -> tuple[str, ...]:
    """A run's cells under :func:`heads`; during evaluation, the step counts the lines scored."""
    state, progress, attempt = str(run.state), run.report, run.attempt
    left = status.left.get(run.name)
    step = loss = speed = place = tried = ""
    if progress is not None and progress.step:
        step = f"{progress.step:,}"
        if progress.max_steps:
            step += f"/{steps(progress.max_steps)}"
        if progress.loss is not None:
            loss = number(progress.loss, 3)
    if run.state == RunState.DONE:
        scores = run.scores.items()
        step = _SEPARATOR.join(number(value, MEASURES[name].paper_digits) for name, value in scores)
        left = run.seconds
        if run.diverged_at is not None:
            step = f"diverged at step {run.diverged_at:,}"
    elif run.silent_seconds is not None:
        largest = " ".join(duration(run.silent_seconds).split()[:2])  # the larger of its two units
        state, left = f"silent {largest}", None
    elif run.state == RunState.RUNNING:
        state = str(progress.stage) if progress else "starting"
        if progress and progress.tokens_per_second:
            speed = f"{progress.tokens_per_second / 1000:.1f}K"
    if attempt is not None:
        gpus = ",".join(str(device)[:8] for device in attempt.devices)  # UUIDs are long
        place = ":".join(part for part in (attempt.host, gpus) if part)
        tried = str(attempt.number) if attempt.number > 1 else ""
    return run.name, state, step, loss, speed, place, tried, duration(left) if left else ""


def mark(run: Run) -> str:
    """The style of a run's state: live, done, warn, bad or empty."""
    return "warn" if run.silent_seconds is not None else _MARKS[run.state]


def in_order(runs: Sequence[Run]) -> list[Run]:
    """The runs by state, those in progress first."""
    order = list(_MARKS)
    return sorted(runs, key=lambda run: order.index(run.state))


def describe_counts(status: Status) -> str:
    """How many runs are done, and how many are in each other state."""
    counts = status.counts
    words = [f"{counts[RunState.DONE]} of {len(status.runs)} done"]
    for state in _MARKS:
        if state in counts and state != RunState.DONE:
            words.append(f"{counts[state]} {state}")
    return ", ".join(words)


def describe_time(status: Status) -> str:
    """The time until all runs have ended, or why it is not known."""
    if status.is_over:
        return "all runs have ended"
    if status.seconds_left is not None:
        return f"{duration(status.seconds_left)} left"
    is_silent = status.is_driven and RunState.RUNNING in status.counts
    if is_silent or any(run.is_live for run in status.runs):
        return "time left not known yet"
    if not status.is_driven:
        return "none in progress"
    left = [run for run in status.runs if run.state not in ENDED]
    if any(run.attempt for run in left):
        return f"{len(left)} wait for a place to run"
    return "the driver is starting"


def failed(status: Status) -> list[Run]:
    """The runs that have failed and are not done, the latest failure first."""
    runs = [run for run in status.runs if run.failures and run.state != RunState.DONE]
    return sorted(runs, key=lambda run: -run.failures[-1].at)


def _headline(status: Status) -> str:
    return f"{status.title}: {describe_counts(status)}, {describe_time(status)}"


def block(status: Status, height: int | None = None) -> RenderableType:
    """The status, with runs in progress first and as many others as ``height`` lines can hold."""
    runs, failures = in_order(status.runs), _failures(status, whole=height is None)
    room = len(runs)
    if height is not None:
        failures = failures[: height // 3]
        # Five lines are for the headline (up to two), the columns' heads, the count and the cursor.
        room = max(1, height - 5 - len(status.warnings) - len(failures))
    table = Table(box=None, padding=(0, 1, 0, 0), pad_edge=False, header_style="dim")
    for name in heads(status):
        side = "left" if name in ("run", "state", "on") else "right"
        table.add_column(name, justify=side, no_wrap=True)
    for run in runs[:room]:
        name, state, *more = as_text(run, status)
        table.add_row(Text(name), Text(state, _COLOURS.get(mark(run), "")), *map(Text, more))
    parts: list[RenderableType] = [Text(_headline(status)), table]
    if len(runs) > room:
        parts.append(Text(f"… and {len(runs) - room} more", style="dim"))
    warnings = [Text(f"warning: {text}", _COLOURS["warn"]) for text in status.warnings]
    return Group(*parts, *warnings, *failures)


def _failures(status: Status, *, whole: bool) -> list[Text]:
    """The last failure of each unfinished run with the end of its log. Lines are wrapped if they
    are shown ``whole``, and cut off otherwise.
    """
    lines: list[str] = []
    for run in failed(status):
        last = run.failures[-1]
        lines.append(f"{run.name}, attempt {last.attempt}: {last.reason}")
        lines += [f"    {line}" for line in last.lines]
    if whole:
        return [Text(line) for line in lines]
    return [Text(line, no_wrap=True, overflow="ellipsis") for line in lines]


class View:
    """Shows a status on ``console``: a block that is redrawn or, outside a terminal, a line every
    half minute.

    Example:
        >>> with View(Console()) as view:
        ...     view.update(reader.read)
        ...     view.note("base/seed-1: started")
    """

    def __init__(self, console: Console) -> None:
        self._console = console
        self._live: Live | None = None
        self._next = 0.0

    def __enter__(self) -> View:
        if self._console.is_terminal:
            self._live = Live(
                console=self._console, auto_refresh=False, transient=True, redirect_stdout=False
            )
            self._live.start()
        return self

    def __exit__(self, *_: object) -> None:
        if self._live is not None:
            self._live.stop()
            self._live = None

    def note(self, text: str) -> None:
        """Print a line above the block."""
        self._console.print(Text(text), soft_wrap=not self._console.is_terminal)

    def update(self, look: Callable[[], Status]) -> None:
        """Show the status if it is time to; ``look`` is called only then."""
        began = time.monotonic()
        if began < self._next:
            return
        status = look()
        took = time.monotonic() - began
        if self._live is None:
            self.note(_headline(status))
        else:
            self._live.update(block(status, self._console.height), refresh=True)
        least = _LIVE_SECONDS if self._live else _PLAIN_SECONDS
        self._next = began + max(least, _PATIENCE * took)


def show_status(directory: Path, *, watch: bool, as_json: bool) -> int:
    """Print the status of ``directory``, once or until all runs have ended; return the exit code.

    Raises:
        InputError: if it is not the directory of a table or a search.
    """
    reader = DirectoryReader(directory)
    console = Console(highlight=False, width=None if sys.stdout.isatty() else _WIDE)
    with View(console) as view:
        while True:
            began = time.monotonic()
            status = reader.read()
            took = time.monotonic() - began
            if not watch or status.is_over:
                break
            if as_json:
                _print_json(status)
            else:
                view.update(lambda status=status: status)
            time.sleep(max(_LIVE_SECONDS, _PATIENCE * took))
    if as_json:
        _print_json(status)
    else:
        console.print(block(status), soft_wrap=not console.is_terminal)
    return 0


def _print_json(status: Status) -> None:
    print(to_json(status.to_dict(), indent=None), end="", flush=True)
