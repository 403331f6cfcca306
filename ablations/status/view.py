"""The live view: a block that is redrawn on a terminal, else a line every half minute."""

from __future__ import annotations

import time
from collections.abc import Callable

from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.progress_bar import ProgressBar
from rich.table import Table
from rich.text import Text

from ablations.status.model import ENDED, Run, Status
from ablations.status.text import (
    at_step,
    describe,
    describe_failure,
    describe_host,
    folded,
    headline,
    in_order,
    place,
    stage,
)
from experiments.run.progress import RunState
from transformer.formats import duration, number

_LIVE_SECONDS = 1.0
_PLAIN_SECONDS = 30.0
_PATIENCE = 50
_LOG_LINES = 2
_MOST_HOSTS = 4
_PLACE_WIDTH = 12
_COLOURS = {RunState.FAILED: "red", RunState.GIVEN_UP: "red", RunState.STOPPED: "yellow"}


class View:
    """Shows a status on ``console``.

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
        if self._live is None:
            running = (describe(run, status) for run in status.running)
            self.note("; ".join([headline(status), *running]))
        else:
            self._live.update(block(status, self._console.height), refresh=True)


def block(status: Status, height: int) -> RenderableType:
    """The status for a terminal of ``height`` lines, runs in progress first."""
    ended = sum(run.state in ENDED for run in status.runs)
    bar = Table.grid()  # a bar alone would not end its line
    bar.add_row(
        ProgressBar(total=len(status.runs), completed=ended, width=40, complete_style="none")
    )
    hosts = [Text(describe_host(host, status), style="dim") for host in status.hosts]
    if len(hosts) > _MOST_HOSTS:
        hosts = [Text(f"{len(status.running)} runs on {len(hosts)} hosts", style="dim")]
    failures = _failures(status, (height - 5 - len(hosts)) // 3)
    # The headline (up to two lines), the bar, the column headers and the cursor take five.
    room = max(1, height - 5 - len(hosts) - len(failures))
    runs = in_order(status)
    shown = runs if len(runs) <= room else runs[: room - 1]
    rest = runs[len(shown) :]
    return Group(
        Text(headline(status)),
        bar,
        *hosts,
        _grid(shown, status),
        *([Text(folded(rest), style="dim")] if rest else []),
        *failures,
    )


def _grid(runs: list[Run], status: Status) -> Table:
    grid = Table(
        box=None, padding=(0, 1), collapse_padding=True, pad_edge=False, header_style="dim"
    )
    grid.add_column("run", no_wrap=True)
    grid.add_column("state", no_wrap=True)
    for name in ("step", "loss", "tok/s"):
        grid.add_column(name, justify="right", no_wrap=True)
    grid.add_column("on", no_wrap=True)
    grid.add_column("try", justify="right", no_wrap=True)
    grid.add_column("left/took", justify="right", no_wrap=True)
    for run in runs:
        grid.add_row(*_cells(run, status))
    return grid


def _cells(run: Run, status: Status) -> tuple[Text | str, ...]:
    silent = status.silent_for(run)
    colour = "yellow" if silent is not None else _COLOURS.get(run.state, "")
    name, state = Text(run.name), Text(stage(run, silent), style=colour)
    attempt = str(run.attempt) if run.attempt and run.attempt > 1 else ""
    where = Text(place(run, _PLACE_WIDTH))
    if run.state == RunState.DONE:
        figures = f"ppl {number(run.scores.get('perplexity'), 2)}", "", ""
        return name, state, *figures, where, attempt, duration(run.seconds)
    progress = run.progress
    loss = speed = left = ""
    if run.state == RunState.RUNNING:
        left = duration(run.seconds_left) if run.seconds_left else ""
        if progress is not None and progress.loss is not None:
            loss = number(progress.loss, 3)
        if progress is not None and progress.tokens_per_second:
            speed = f"{progress.tokens_per_second / 1000:.1f}K"
    if silent is not None:
        left = duration(silent)
    return name, state, at_step(run), loss, speed, where, attempt, left


def _failures(status: Status, most: int) -> list[Text]:
    """The last failure of each unfinished run, newest first, in at most ``most`` lines."""
    failed = [
        run
        for run in status.runs
        if run.failures and run.state not in (RunState.DONE, RunState.PRUNED)
    ]
    failed.sort(key=lambda run: -run.failures[-1].at)
    lines: list[Text] = []
    for run in failed:
        told = describe_failure(run, run.failures[-1], _LOG_LINES)
        if len(lines) + len(told) > most:
            break
        lines += [Text(line, no_wrap=True, overflow="ellipsis") for line in told]
    return lines
