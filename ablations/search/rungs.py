"""Where a search ends its poor trials early, in words."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence

from ablations.search.search import Search


def describe_rungs(search: Search) -> str:
    """Where trials are pruned, or why none is, in one line."""
    if search.pruner == "none":
        return "No trial is pruned, as the search has --pruner none."
    rungs = search.rungs
    warm_up = f"the longest warm-up that the space allows ({search.longest_warm_up:,})"
    if not rungs:
        return f"No trial is pruned: {warm_up} leaves no validation before the last step."
    steps = ", ".join(f"{step:,}" for step in rungs)
    where = f"at step{'s' if len(rungs) > 1 else ''} {steps}, after {warm_up}"
    if search.pruner == "median":
        return f"Trials worse than the median of the finished ones are pruned {where}."
    brackets = " A part of them, Hyperband's later brackets, skips the first." if rungs[1:] else ""
    return f"Hyperband keeps about a third of the trials {where}.{brackets}"


def count_passed(rungs: Sequence[int], ends: Iterable[tuple[int, bool]]) -> str:
    """How many trials went on from each rung, in words; empty without any.

    Args:
        ends: the step that each trial has reached, and whether it ended there early
    """
    reached, passed = Counter[int](), Counter[int]()
    for step, is_early in ends:
        below = [rung for rung in rungs if rung <= step]
        reached.update(below)
        passed.update(below[:-1] if is_early or below[-1:] == [step] else below)
    counts = (f"{passed[rung]} of {reached[rung]} went on from step {rung:,}" for rung in rungs)
    return f"trials: {', '.join(counts)}" if reached else ""
