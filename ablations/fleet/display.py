"""What a person sees while a table runs: a live block on a terminal, else a line now and then."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from types import TracebackType

from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.progress_bar import ProgressBar
from rich.table import Table
from rich.text import Text

from ablations.formats import MISSING, count, duration, number
from ablations.table import Cell
from experiments.progress import Progress
from experiments.results import Result

_LIVE_SECONDS = 1.0
_PLAIN_SECONDS = 30.0


@dataclass(frozen=True, slots=True)
class Running:
    """A cell under way, with the seconds that it still needs as far as that is known."""

    cell: Cell
    progress: Progress | None
    seconds_left: float | None


@dataclass(frozen=True, kw_only=True, slots=True)
class Snapshot:
    """How far a table has come."""

    done: int
    failed: int
    total: int
    running: tuple[Running, ...]
    seconds_left: float | None


class Display:
    """Tells of a table's progress on ``console``.

    Example:
        >>> with Display(Console()) as display:
        ...     display.update(snapshot)
    """

    def __init__(self, console: Console) -> None:
        self._console = console
        self._live: Live | None = None
        self._next = 0.0

    def __enter__(self) -> Display:
        if self._console.is_terminal:
            self._live = Live(console=self._console, auto_refresh=False, transient=True)
            self._live.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if self._live is not None:
            self._live.stop()
            self._live = None

    def note(self, text: str) -> None:
        """Tell something in a line of its own."""
        self._console.print(Text(text), soft_wrap=True)

    def started(self, cell: Cell) -> None:
        """Tell that a run has begun; a live block shows that anyway."""
        if self._live is None:
            self.note(f"{cell}: started")

    def finished(self, cell: Cell, result: Result, seconds: float) -> None:
        """Tell how a run ended."""
        self.note(
            f"{cell}: finished in {duration(seconds)}, perplexity "
            f"{number(result.perplexity, 2)}, BLEU {number(result.bleu, 1)}"
        )

    def failed(self, cell: Cell, reason: str, lines: Sequence[str]) -> None:
        """Tell that a run crashed, with the end of its log."""
        self.note("\n".join([f"{cell}: failed, {reason}", *(f"    {line}" for line in lines)]))

    def update(self, snapshot: Callable[[], Snapshot]) -> None:
        """Show the present state, if it is time for that; only then is it asked for."""
        now = time.monotonic()
        if now < self._next:
            return
        if self._live is not None:
            self._next = now + _LIVE_SECONDS
            self._live.update(_block(snapshot()), refresh=True)
            return
        if self._next:
            self.note(_line(snapshot()))
        self._next = now + _PLAIN_SECONDS


def _summary(snapshot: Snapshot) -> str:
    failed = f", {snapshot.failed} failed" if snapshot.failed else ""
    left = "" if snapshot.seconds_left is None else f", {duration(snapshot.seconds_left)} left"
    return f"{snapshot.done} of {snapshot.total} runs done{failed}{left}"


def _line(snapshot: Snapshot) -> str:
    return "; ".join([_summary(snapshot), *(_describe(run) for run in snapshot.running)])


def _describe(run: Running) -> str:
    progress = run.progress
    if progress is None:
        return f"{run.cell} starting"
    if progress.stage != "train" or not progress.max_steps:
        return f"{run.cell} {progress.stage}"
    speed = "" if not progress.tokens_per_second else f", {count(progress.tokens_per_second)} tok/s"
    loss = "" if progress.loss is None else f", loss {number(progress.loss, 3)}"
    return f"{run.cell} step {progress.step:,}/{progress.max_steps:,}{loss}{speed}"


def _block(snapshot: Snapshot) -> RenderableType:
    grid = Table(box=None, pad_edge=False, header_style="dim")
    grid.add_column("run")
    for name in ("stage", "step", "loss", "tokens/s", "left"):
        grid.add_column(name, justify="right")
    for run in snapshot.running:
        grid.add_row(*_cells(run))
    bar = Table.grid(padding=(0, 2))
    bar.add_row(
        ProgressBar(total=snapshot.total, completed=snapshot.done, width=30), _summary(snapshot)
    )
    return Group(grid, bar)


def _cells(run: Running) -> tuple[str, ...]:
    progress = run.progress or Progress(stage="prepare")
    step = f"{progress.step:,}/{progress.max_steps:,}" if progress.max_steps else MISSING
    speed = progress.tokens_per_second
    return (
        str(run.cell),
        progress.stage if run.progress else "starting",
        step,
        number(progress.loss, 3),
        count(speed) if speed else MISSING,
        duration(run.seconds_left),
    )
