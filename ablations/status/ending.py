"""When each run will end, and the last of all."""

from __future__ import annotations

import statistics
from collections.abc import Callable, Sequence
from dataclasses import replace

from ablations.costs.timing import Timing, predict, run_flops, until_the_last
from ablations.status.contents import Contents
from ablations.status.model import ENDED, Run, Status
from transformer.config import Config


def expect(contents: Contents, runs: Sequence[Run], now: float) -> Status:
    """The status of ``runs``, with the time that those under way and all of them need.

    The others take as long as those that are finished or under way tell.
    """
    whole = {run.name: seconds for run in runs if (seconds := _whole(run)) is not None}
    known = [(contents.cells.get(name), seconds) for name, seconds in whole.items()]
    timings = [Timing(config, seconds) for config, seconds in known if config is not None]

    def expected(name: str) -> float | None:
        config = contents.cells.get(name)
        if config is not None:
            return predict(config, timings)
        return statistics.fmean(whole.values()) if whole else None

    told = [replace(run, seconds_left=_left(run, expected(run.name))) for run in runs]
    status = Status(title=contents.title, at=now, runs=tuple(told), seconds_left=None)
    return replace(status, seconds_left=_until_the_end(status, contents, expected))


def _until_the_end(
    status: Status, contents: Contents, expected: Callable[[str], float | None]
) -> float | None:
    live = [run for run in status.running if status.silent_for(run) is None]
    open_runs = [run for run in status.runs if run.state not in ENDED and run not in live]
    if not live or any(run.seconds_left is None for run in live):
        return None
    open_runs.sort(key=lambda run: -_work(contents.cells.get(run.name)))
    waiting = [expected(run.name) for run in open_runs]
    seconds = [value for value in waiting if value is not None]
    if len(seconds) < len(waiting):
        return None
    return until_the_last([run.seconds_left or 0.0 for run in live], seconds, len(live))


def _work(config: Config | None) -> float:
    return 0.0 if config is None else run_flops(config)


def _whole(run: Run) -> float | None:
    """What a run takes from its start to its end, as far as it tells."""
    if run.state == "done":
        return run.seconds
    progress = run.progress
    if run.state != "running" or progress is None or progress.seconds_left is None:
        return None
    rest = progress.max_steps - progress.step
    if progress.stage != "train" or rest <= 0:
        return None
    return progress.seconds_left * progress.max_steps / rest


def _left(run: Run, expected: float | None) -> float | None:
    if run.state != "running":
        return None
    progress = run.progress
    if progress is not None and progress.seconds_left is not None:
        return progress.seconds_left
    if progress is None or progress.stage == "prepare":
        return expected
    if progress.stage != "train" or not progress.max_steps:
        return 0.0
    return None if expected is None else expected * (1 - progress.step / progress.max_steps)
