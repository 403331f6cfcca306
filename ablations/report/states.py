"""How far a run without a result came, in words."""

from __future__ import annotations

from ablations.report.summary import Unfinished
from experiments.run.progress import RunState

# Stages at which a process has ended without a result.
_ENDED = (RunState.STOPPED, RunState.REFUSED, RunState.DIVERGED, RunState.FAILED)


def describe_state(unfinished: Unfinished) -> str:
    """How far a cell without a result came."""
    progress = unfinished.progress
    if unfinished.left_out:
        return f"left out: {unfinished.left_out}"
    if progress is None or progress.stage not in _ENDED:
        return short_state(unfinished)
    where = f" at step {progress.step:,} of {progress.max_steps:,}" if progress.step else ""
    if progress.stage == RunState.STOPPED:
        return f"stopped{where}"
    return f"{progress.stage}{where} ({progress.message or 'no reason was left'})"


def short_state(unfinished: Unfinished) -> str:
    """The same in the fewest words, for a cell of a table."""
    progress = unfinished.progress
    if progress is None:
        return "left out" if unfinished.left_out else "missing"
    if progress.stage in _ENDED:
        return progress.stage
    if progress.stage == RunState.TRAIN and progress.max_steps:
        return f"step {progress.step:,} of {progress.max_steps:,}"
    evaluates = progress.stage in (RunState.EVALUATE, RunState.DONE)
    return "in evaluation" if evaluates else "in preparation"


def urgency(unfinished: Unfinished) -> tuple[bool, bool, int]:
    """What a row with several unfinished runs shows: a failure before all, then the furthest."""
    progress = unfinished.progress
    if progress is None:
        return bool(unfinished.left_out), False, 0
    failed = progress.stage in (RunState.FAILED, RunState.REFUSED, RunState.DIVERGED)
    return failed, True, progress.step
