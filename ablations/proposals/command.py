"""Carry out ``try``, and print its answer."""

from __future__ import annotations

import math
import sys
from collections.abc import Iterator
from contextlib import redirect_stdout
from pathlib import Path

from ablations.proposals.adopt import adopt as adopt_proposal
from ablations.proposals.decide import Verdict
from ablations.proposals.desk import StoppedError
from ablations.proposals.ledger import LEDGER_FILE, Adopted, Tried
from ablations.proposals.propose import Answer, try_proposal
from ablations.runs.options import Options
from transformer import formats
from transformer.errors import InputError
from transformer.terminal import say


def carry_out(
    what: str,
    scale: str,
    directory: Path | None,
    *,
    minutes: float | None,
    options: Options,
    adopt: bool,
    as_json: bool,
) -> int:
    """Try a proposal, or adopt one, and print the answer; return the exit code.

    With ``as_json``, messages during training go to standard error.
    """
    if adopt and minutes is not None:
        raise InputError("--minutes is for trying a proposal: leave it out with --adopt")
    root = directory or Path("runs") / f"try-{scale}"
    try:
        with redirect_stdout(sys.stderr if as_json else sys.stdout):
            if adopt:
                answer = adopt_proposal(what, scale, root, options)
            else:
                answer = try_proposal(what, scale, root, minutes, options)
    except StoppedError as stopped:
        print("stopped; the same command continues from here", file=sys.stderr)
        return stopped.code
    if as_json:
        print(answer.to_json(), end="")
    else:
        say(*_describe(answer))
    return answer.code


def _percent(difference: float) -> str:
    """A difference in the logarithm of perplexity as one of perplexity, in per cent."""
    return f"{formats.difference(100 * math.expm1(difference), 2)} %"


def _describe(answer: Answer) -> Iterator[str]:
    """The lines for a terminal."""
    line, ledger = answer.line, answer.directory / LEDGER_FILE
    if isinstance(line, Adopted):
        yield (
            f"{line.name} is the base now, with seeds {line.seeds[0]} to {line.seeds[-1]}: "
            f"perplexity {_percent(line.difference)} from the base before"
        )
    else:
        yield from _describe_tried(line, repeated=answer.repeated)
        if answer.current_base != line.base:
            yield f"    {answer.current_base} has become the base since then"
    now, later = _percent(-answer.smallest_gain), _percent(-answer.smallest_gain_after_20)
    yield f"smallest gain to show with 80 % power: {now} for the next, {later} after 20 more"
    yield f"ledger: {ledger}"
    if isinstance(line, Tried) and line.verdict == Verdict.BETTER and not answer.repeated:
        yield f"to make it the base: try --adopt {line.number} with the same scale and directory"


def _describe_tried(line: Tried, *, repeated: bool) -> Iterator[str]:
    before = f", tried before, {line.when}" if repeated else ""
    yield f"proposal {line.number}, {line.name}: {line.verdict}{before}"
    if line.difference is not None:
        text = f"    perplexity {_percent(line.difference)}"
        if line.interval is not None and line.level is not None and line.p is not None:
            low, high = map(_percent, line.interval)
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
