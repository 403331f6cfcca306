"""Describe the outcome of a proposal in a few lines."""

from __future__ import annotations

import math
from collections.abc import Iterator

from ablations.proposals.decide import Verdict
from ablations.proposals.ledger import LEDGER_FILE, Adopted, Tried
from ablations.proposals.propose import Answer
from transformer import formats


def percent(difference: float) -> str:
    """A difference in the logarithm of perplexity as one of perplexity, in per cent."""
    return f"{formats.difference(100 * math.expm1(difference), 2)} %"


def describe(answer: Answer) -> Iterator[str]:
    """The lines for a terminal."""
    line, ledger = answer.line, answer.directory / LEDGER_FILE
    if isinstance(line, Adopted):
        yield (
            f"{line.name} is the base now, with seeds {line.seeds[0]} to {line.seeds[-1]}: "
            f"perplexity {percent(line.difference)} from the base before"
        )
    else:
        yield from _describe_tried(line, repeated=answer.repeated)
    now, later = percent(-answer.smallest_gain), percent(-answer.smallest_gain_after_20)
    yield f"smallest gain to show with 80 % power: {now} for the next, {later} after 20 more"
    yield f"ledger: {ledger}"
    if isinstance(line, Tried) and line.verdict == Verdict.BETTER and not answer.repeated:
        yield f"to make it the base: try --adopt {line.number} with the same scale and directory"


def _describe_tried(line: Tried, *, repeated: bool) -> Iterator[str]:
    before = f", tried before, {line.when}" if repeated else ""
    yield f"proposal {line.number}, {line.name}: {line.verdict}{before}"
    if line.difference is not None:
        text = f"    perplexity {percent(line.difference)}"
        if line.interval is not None and line.level is not None and line.p is not None:
            low, high = map(percent, line.interval)
            text += (
                f" ({100 * (1 - line.level):.4g} % CI {low} to {high}), p = {line.p:.2g}, tested "
                f"at {line.level:.2g} as number {line.look} of its ledger"
            )
        yield text
    finished = sum(value is not None for value in line.perplexities.values())
    yield (
        f"    {finished} of {formats.counted(len(line.seeds), 'seed')} finished, against "
        f"{len(line.base_seeds)} of {line.base}"
    )
    if line.reason:
        yield f"    {line.reason}"
