"""Show a status on a terminal."""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import NamedTuple

from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.progress_bar import ProgressBar
from rich.table import Table
from rich.text import Text

from ablations.status.from_directory import DirectoryReader
from ablations.status.model import ENDED, Run, Status, to_json
from experiments.records.progress import RunState
from experiments.records.result import MEASURES
from transformer.formats import duration, number, steps

_LIVE_SECONDS = 1.0
_PLAIN_SECONDS = 30.0
_PATIENCE = 50
_HOST_WIDTH = 8
_WIDE = 500  # of what is not a terminal
_LOG_LINES, _FEW_LOG_LINES = 10, 2
# The order in which runs are shown, and how their state is marked.
_MARKS = {
    RunState.RUNNING: "live",
    RunState.FAILED: "bad",
    RunState.GIVEN_UP: "bad",
    RunState.STOPPED: "warn",
    RunState.WAITING: "",
    RunState.PRUNED: "",
    RunState.DONE: "done",
}
_HEADS = ("run", "state", "step/scores", "loss", "tok/s", "on", "GPUs", "try", "left/took")
_COLOURS = {"bad": "red", "warn": "yellow"}


class RunText(NamedTuple):
    """A run as text: its host and ``devices``, such as ``0-3``, and the ``time`` that it has left,
    took, or was silent for; ``mark`` is live, done, warn or bad.
    """

    run: str
    state: str
    step: str
    loss: str
    speed: str
    host: str
    devices: str
    attempt: str
    time: str
    mark: str


def as_text(run: Run) -> RunText:
    """What every view shows of a run.

    ``step`` is in evaluation the line that is scored, and of a finished run its scores.
    """
    state, mark = str(run.state), _MARKS[run.state]
    progress, step, loss, speed, left = run.progress, "", "", "", run.seconds_left
    if progress is not None:
        whole = f"/{steps(progress.max_steps)}" if progress.max_steps else ""
        step = f"{progress.step:,}{whole}" * bool(progress.step)
        loss = "" if progress.loss is None else number(progress.loss, 3)
    if run.state == RunState.DONE:
        scores = (number(x, MEASURES[name].paper_digits) for name, x in run.scores.items())
        step, left = " · ".join(scores), run.seconds
    elif run.silent_seconds is not None:
        state, mark, left = "silent", "warn", run.silent_seconds
    elif run.state == RunState.RUNNING:
        state = str(progress.stage) if progress else "starting"
        if progress and progress.tokens_per_second:
            speed = f"{progress.tokens_per_second / 1000:.1f}K"
    return RunText(
        run.name,
        state,
        step,
        loss,
        speed,
        run.attempt.host if run.attempt else "",
        _devices(run),
        str(run.attempt.number) if run.attempt and run.attempt.number > 1 else "",
        duration(left) if left else "",
        mark,
    )


def _devices(run: Run) -> str:
    """The first and the last of many GPUs; UUIDs are abbreviated."""
    numbers = [str(device)[:8] for device in run.attempt.devices] if run.attempt else []
    return "-".join([numbers[0], numbers[-1]]) if len(numbers) > 2 else ",".join(numbers)


def in_order(runs: Sequence[Run]) -> list[Run]:
    """The runs by state, those in progress first."""
    return sorted(runs, key=lambda run: [*_MARKS].index(run.state))


def count_states(runs: Sequence[Run]) -> list[str]:
    """How many runs are in each state that occurs."""
    states = [run.state for run in runs]
    return [f"{states.count(state)} {state}" for state in _MARKS if state in states]


def describe_counts(status: Status) -> str:
    """How many of all runs are done, and in each other state."""
    done = f"{status.counts[RunState.DONE]} of {len(status.runs)} done"
    return ", ".join([done, *count_states([x for x in status.runs if x.state != RunState.DONE])])


def describe_time(status: Status) -> str:
    """The time until all runs have ended, or why it is not known."""
    if status.is_over:
        return "all runs have ended"
    if status.seconds_left is not None:
        return f"{duration(status.seconds_left)} left"
    if any(run.is_live for run in status.runs):
        return "time left not known yet"
    return "the driver is starting" if status.is_driven else "nobody works on it"


def _headline(status: Status) -> str:
    time_left = [] if status.is_over else [describe_time(status)]
    return ", ".join([f"{status.title}: {describe_counts(status)}", *time_left])


def block(status: Status, height: int | None = None) -> RenderableType:
    """The status with runs in progress first, folded for a terminal of ``height`` lines."""
    top = [Text(_headline(status)), *[Text(status.passed)] * bool(status.passed)]
    runs = in_order(status.runs)
    if height is None:
        return Group(*top, _table(runs), *_failures(status, None))
    ended = sum(run.state in ENDED for run in runs)
    bar = Table.grid()  # a bar alone would not end its line
    bar.add_row(ProgressBar(total=len(runs), completed=ended, width=40, complete_style="none"))
    # The headline (up to two lines), the bar, the column headers and the cursor take five.
    room = height - 4 - len(top)
    failures = _failures(status, room // 3)
    room = max(1, room - len(failures))
    shown = runs if len(runs) <= room else runs[: room - 1]
    rest = ", ".join(count_states(runs[len(shown) :]))
    folded = [Text(f"… and {rest}", style="dim")] * bool(rest)
    return Group(*top, bar, _table(shown, _HOST_WIDTH), *folded, *failures)


def _table(runs: Sequence[Run], host_width: int | None = None) -> Table:
    """A line for each run, without the columns that are empty."""
    texts = [as_text(run) for run in runs]
    used = [place for place in range(len(_HEADS)) if any(text[place] for text in texts)]
    table = Table(
        box=None, padding=(0, 1), collapse_padding=True, pad_edge=False, header_style="dim"
    )
    for name in (_HEADS[place] for place in used):
        side = "left" if name in ("run", "state", "on") else "right"
        most = host_width if name == "on" else None
        table.add_column(name, justify=side, no_wrap=True, max_width=most)
    for text in texts:
        colours = {1: _COLOURS.get(text.mark, "")}
        table.add_row(*(Text(text[place], style=colours.get(place, "")) for place in used))
    return table


def _failures(status: Status, room: int | None) -> list[Text]:
    """The last failure of each unfinished run, the newest first, in at most ``room`` lines."""
    done = (RunState.DONE, RunState.PRUNED)
    failed = [run for run in status.runs if run.failures and run.state not in done]
    found: list[Text] = []
    for run in sorted(failed, key=lambda run: -run.failures[-1].at):
        last = run.failures[-1]
        log = last.lines[-(_LOG_LINES if room is None else _FEW_LOG_LINES) :]
        told = [f"{run.name}, attempt {last.attempt}: {last.reason}", *(f"    {x}" for x in log)]
        if room is not None and len(found) + len(told) > room:
            break
        found += [Text(line, no_wrap=True, overflow="ellipsis") for line in told]
    return found


class View:
    """Shows a status on ``console``: a block that is redrawn, or a line every half minute.

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
        """Print a line, above the block."""
        self._console.print(Text(text), soft_wrap=True)

    def update(self, look: Callable[[], Status]) -> None:
        """Show the status if it is time to; only then ``look`` is called."""
        now = time.monotonic()
        if now < self._next:
            return
        status = look()
        # Of thousands of runs, reading takes a while, which is no reason to do nothing else.
        least = _PATIENCE * (time.monotonic() - now)
        self._next = now + max(least, _PLAIN_SECONDS if self._live is None else _LIVE_SECONDS)
        if self._live is not None:
            self._live.update(block(status, self._console.height), refresh=True)
            return
        rows = (as_text(run) for run in status.runs if run.state == RunState.RUNNING)
        self.note("; ".join([_headline(status), *(" ".join(filter(None, x[:-1])) for x in rows)]))


def show_status(directory: Path, *, watch: bool, as_json: bool) -> int:
    """Print the status of ``directory`` once, or until all runs have ended; the exit code.

    Raises:
        InputError: if it is not the directory of a table or a search.
    """
    reader = DirectoryReader(directory)
    console = Console(highlight=False, width=None if sys.stdout.isatty() else _WIDE)
    status = reader.read()
    with View(console) as view:
        while watch and not status.is_over:
            if as_json:
                print(json.dumps(to_json(status)), flush=True)
            else:
                view.update(lambda status=status: status)
            time.sleep(_LIVE_SECONDS)
            status = reader.read()
    if as_json:
        print(json.dumps(to_json(status)))
    else:
        console.print(block(status), soft_wrap=True)
    return 0
