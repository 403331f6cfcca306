"""Make a proposal the base."""

from __future__ import annotations

import math
from dataclasses import replace
from pathlib import Path
from statistics import fmean

from ablations.files import PLAN_FILE, check_free
from ablations.proposals.decide import Verdict
from ablations.proposals.desk import Desk
from ablations.proposals.ledger import Adopted, Tried
from ablations.proposals.propose import Answer, answer_of, now
from ablations.runs.lock import WHOLE, lock_runs
from ablations.runs.options import Options
from transformer.errors import InputError

_FRESH = 10  # new seeds, as many as the first base has


def adopt(which: str, scale: str, root: Path, options: Options) -> Answer:
    """Train a better proposal on new seeds, and make it the base.

    Args:
        which: the proposal's number or name
        root: the directory of the proposals and their base

    Raises:
        InputError: if there is no such proposal, its verdict is not "better" than this base, a new
            seed has no finite score, or the new seeds are worse than this base.
        ablations.proposals.desk.StoppedError: after a signal.
    """
    if not (root / PLAN_FILE).exists():
        raise InputError(f"{root} has no proposals: try one first")
    check_free(root, PLAN_FILE)
    with lock_runs(root, WHOLE):
        desk = Desk(root, scale, options)
        line = _find_better(desk, which)
        row = desk.plan.row(line.name)
        fresh = tuple(seed for seed in row.seeds if seed not in line.seeds)  # begun before a kill
        if not fresh:
            used = max(seed for each in desk.plan.rows for seed in each.seeds)
            fresh = tuple(range(used + 1, used + 1 + _FRESH))
            desk.add(replace(row, seeds=(*row.seeds, *fresh)))
        desk.train(line.name, fresh, says=f"training {line.name} on new seeds", retry=True)
        found = desk.scores(line.name, fresh)
        if len(found.by_seed) < len(fresh):
            reason = f" ({found.reasons[0]})" if found.reasons else ""
            raise InputError(
                f"{line.name} did not finish all seeds from {fresh[0]} to {fresh[-1]}{reason}, so "
                "it does not become the base"
            )
        base = desk.scores(desk.base, desk.base_seeds).values
        difference = fmean(found.values) - fmean(base)
        if difference >= 0:
            raise InputError(
                f"on its new seeds {line.name} is {math.expm1(difference):.1%} worse than "
                f"{desk.base}, so it does not become the base"
            )
        adopted = Adopted(
            adopted=line.number,
            name=line.name,
            seeds=fresh,
            difference=difference,
            seconds=found.seconds,
            when=now(),
        )
        desk.ledger.append(adopted)
        return answer_of(desk, adopted)


def _find_better(desk: Desk, which: str) -> Tried:
    tried = desk.ledger.tried
    named = [line for line in tried.values() if which in (line.name, str(line.number))]
    if not named:
        known = ", ".join(f"{line.number} {line.name}" for line in tried.values()) or "none"
        raise InputError(f"there is no proposal {which!r} in {desk.root}; it has: {known}")
    line = named[0]
    if line.name == desk.base:
        raise InputError(f"{line.name} is already the base")
    if line.verdict != Verdict.BETTER:
        raise InputError(
            f"the verdict on {line.name} is {line.verdict}, but only a proposal that is better can "
            "become the base"
        )
    if line.base != desk.base:
        raise InputError(
            f"{line.name} was compared with {line.base}, but the base is now {desk.base}: try it "
            f"again on top of that, as a class that extends {desk.base}'s"
        )
    return line
