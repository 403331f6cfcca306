"""How far a run without a result came, in words."""

from __future__ import annotations

from ablations.reporting.summary import Unfinished


def describe_state(unfinished: Unfinished) -> str:
    """How far a cell without a result came."""
    progress = unfinished.progress
    if progress is not None and progress.stage == "failed":
        where = f" at step {progress.step:,} of {progress.max_steps:,}" if progress.step else ""
        return f"failed{where} ({progress.message or 'no reason was left'})"
    return short_state(unfinished)


def short_state(unfinished: Unfinished) -> str:
    """The same in the fewest words, for a cell of a table."""
    progress = unfinished.progress
    if progress is None:
        return "missing"
    if progress.stage == "failed":
        return "failed"
    if progress.stage == "train" and progress.max_steps:
        return f"step {progress.step:,} of {progress.max_steps:,}"
    return "in evaluation" if progress.stage in ("evaluate", "done") else "in preparation"


def urgency(unfinished: Unfinished) -> tuple[bool, bool, int]:
    """What a row with several unfinished runs shows: a failure before all, then the furthest."""
    progress = unfinished.progress
    if progress is None:
        return False, False, 0
    return progress.stage == "failed", True, progress.step
