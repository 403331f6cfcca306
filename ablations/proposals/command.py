"""Carry out ``try``."""

from __future__ import annotations

import sys
from contextlib import redirect_stdout
from pathlib import Path

from ablations.proposals.adopt import adopt as adopt_proposal
from ablations.proposals.desk import StoppedError
from ablations.proposals.propose import Answer, try_proposal
from ablations.proposals.show import describe
from ablations.runs.options import Options
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
    try:
        with redirect_stdout(sys.stderr if as_json else sys.stdout):
            if adopt:
                answer = adopt_proposal(what, scale, directory, options)
            else:
                answer = try_proposal(what, scale, directory, minutes, options)
    except StoppedError as stopped:
        print("stopped; the same command continues from here", file=sys.stderr)
        return stopped.code
    print_answer(answer, as_json=as_json)
    return answer.code


def print_answer(answer: Answer, *, as_json: bool) -> None:
    """Print the answer, for a program or for a reader."""
    if as_json:
        print(answer.to_json(), end="")
    else:
        say(*describe(answer))
