"""The scores of a proposal, or of its base."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from ablations.folder import TableFolder
from ablations.tables.plan import Plan
from experiments.records.run import Run


@dataclass(frozen=True, slots=True)
class Scores:
    """The scores of a row: logarithms of finite perplexities by seed.

    ``left`` are seeds that have not ended, ``lost`` were given up, and ``diverged`` have no usable
    perplexity. ``reasons`` say why seeds diverged or were lost, ``seconds`` is the total time of
    all runs, and ``data`` has the digests of the data that finite runs were trained on.
    """

    by_seed: dict[int, float]
    left: tuple[int, ...] = ()
    lost: tuple[int, ...] = ()
    diverged: tuple[int, ...] = ()
    reasons: tuple[str, ...] = ()
    seconds: float = 0.0
    data: frozenset[str] = frozenset()

    @property
    def values(self) -> tuple[float, ...]:
        """The scores alone."""
        return tuple(self.by_seed.values())


def read_scores(root: Path, plan: Plan, name: str, seeds: Sequence[int]) -> Scores:
    """The scores of a row with these seeds, from checked files."""
    row = replace(plan.row(name), seeds=tuple(seeds))
    runs = TableFolder(root, replace(plan, rows=(row,))).runs()
    diverged = [run for run in runs if run.result is not None and run.result.has_diverged]
    finite = [run for run in runs if run.result is not None and not run.result.has_diverged]
    lost = [run for run in runs if run.is_given_up]
    ended = {run.name for run in (*finite, *lost, *diverged)}
    return Scores(
        by_seed={_seed(run): math.log(run.result.perplexity) for run in finite if run.result},
        left=tuple(_seed(run) for run in runs if run.name not in ended),
        lost=tuple(map(_seed, lost)),
        diverged=tuple(map(_seed, diverged)),
        reasons=tuple(filter(None, map(_reason, (*diverged, *lost, *runs)))),
        seconds=sum(map(_seconds, runs)),
        data=frozenset(run.result.data_digest or "" for run in finite if run.result),
    )


def _seconds(run: Run) -> float:
    """How long a run took, or its newest attempt if it has no result."""
    if run.seconds is not None:
        return run.seconds
    if run.attempt is None or run.report is None:
        return 0.0
    return max(0.0, run.report.updated_at - run.attempt.started_at)


def _reason(run: Run) -> str:
    """Why a run has no score, if its files say so; else empty."""
    if run.result is not None:
        if not run.result.has_diverged:
            return ""
        if run.result.diverged_at is None:
            return "training ended on a plateau"
        return f"training diverged at step {run.result.diverged_at}"
    return run.problem or (run.failures[-1].reason if run.failures else "")


def _seed(run: Run) -> int:
    assert run.seed is not None
    return run.seed
