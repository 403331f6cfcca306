"""The steps at which a search compares its trials, to end the poor ones early."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from typing import Literal

from ablations.search.space import Parameter
from transformer.config import Config

Pruner = Literal["none", "hyperband", "median"]
FACTOR = 3  # of Hyperband: each rung lies at three times the step of the one before


def plan_rungs(pruner: Pruner, base: Config, parameters: Sequence[Parameter]) -> tuple[int, ...]:
    """The steps of a run at which it may be pruned.

    The first is the first validation after the longest warm-up of the space, so that each trial
    has ended its own, and all are compared at the same steps.
    """
    every, last = base.training.validate_every_steps, base.training.max_steps
    step = (_longest_warm_up(base, parameters) // every + 1) * every
    rungs: list[int] = []
    while pruner != "none" and step < last:
        rungs.append(step)
        step = step * FACTOR if pruner == "hyperband" else step + every
    return tuple(rungs)


def describe_rungs(pruner: Pruner, base: Config, parameters: Sequence[Parameter]) -> str:
    """Where trials are pruned, or why none is, in one line."""
    if pruner == "none":
        return "No trial is pruned, as the search has --pruner none."
    rungs = plan_rungs(pruner, base, parameters)
    warm_up = f"the longest warm-up that the space allows ({_longest_warm_up(base, parameters):,})"
    if not rungs:
        return f"No trial is pruned: {warm_up} leaves no validation before the last step."
    steps = ", ".join(f"{step:,}" for step in rungs)
    where = f"at step{'s' if len(rungs) > 1 else ''} {steps}, after {warm_up}"
    if pruner == "median":
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


def _longest_warm_up(base: Config, parameters: Sequence[Parameter]) -> int:
    for parameter in parameters:
        if "warmup_steps" in parameter.fields:
            return max(int(value or 0) for value in parameter.bounds)
    return base.training.warmup_steps
