"""What the times of a fleet's runs and of the same runs without it say of the fleet."""

from __future__ import annotations

import statistics
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise

from ablations.benchmark.timeline import Marks
from experiments.run.results import Result


@dataclass(frozen=True, kw_only=True, slots=True)
class Times:
    """One of the two ways: ``seconds`` from the first run's start to the last one's end; for each
    run, those from its start to its end, of training, and to its first step (None where unseen).
    """

    seconds: float
    run_seconds: tuple[float, ...]
    train_seconds: tuple[float, ...]
    first_step_seconds: tuple[float | None, ...]


@dataclass(frozen=True, kw_only=True, slots=True)
class Overhead:
    """A fleet with one place beside one process that does the same.

    ``ratio`` is of their seconds. A fleet's run ends with its publication: ``closing_seconds``
    before that its result was written, ``turn_seconds`` after it the next process is started
    (medians). ``same_results``: both ways came to the same figures, to the last bit.
    """

    fleet: Times
    reference: Times
    ratio: float
    closing_seconds: float
    turn_seconds: float
    same_results: bool


def overhead(
    fleet: Mapping[str, Marks],
    fleet_results: Sequence[Result],
    reference: Mapping[str, Marks],
    reference_results: Sequence[Result],
) -> Overhead:
    """The figures, of marks and results in the order in which the runs were carried out."""
    arms = _arm(fleet.values(), fleet_results), _arm(reference.values(), reference_results)
    seen = list(fleet.values())
    return Overhead(
        fleet=arms[0],
        reference=arms[1],
        ratio=arms[0].seconds / arms[1].seconds,
        closing_seconds=statistics.median(_between(m.written_at, m.published_at) for m in seen),
        turn_seconds=statistics.median(
            _between(one.published_at, next.started_at) for one, next in pairwise(seen)
        ),
        same_results=all(
            (one.perplexity, one.bleu) == (other.perplexity, other.bleu)
            for one, other in zip(fleet_results, reference_results, strict=True)
        ),
    )


def lines(found: Overhead) -> Iterator[str]:
    """The figures for a person."""
    fleet, reference = found.fleet, found.reference
    yield f"{'':44}{'fleet':>8} {'without':>8}"
    for what, pick in (
        ("seconds in all", lambda arm: arm.seconds),
        ("seconds of training, a run", lambda arm: statistics.median(arm.train_seconds)),
        ("seconds to the first step, first run", lambda arm: arm.first_step_seconds[0]),
        ("seconds to the first step, later runs", lambda arm: _later(arm.first_step_seconds)),
    ):
        yield f"{what:44}{_figure(pick(fleet)):>8} {_figure(pick(reference)):>8}"
    yield f"{'seconds from a result to its publication':44}{found.closing_seconds:8.2f}"
    yield f"{'seconds from that to the next start':44}{found.turn_seconds:8.2f}"
    yield f"the fleet takes {found.ratio - 1:+.1%} of the time that the runs take without it"
    if not found.same_results:
        yield "the results are not the same to the last bit"


def _arm(marks: Iterable[Marks], results: Sequence[Result]) -> Times:
    seen = list(marks)
    return Times(
        seconds=_between(seen[0].started_at, seen[-1].published_at),
        run_seconds=tuple(_between(each.started_at, each.published_at) for each in seen),
        train_seconds=tuple(result.train_seconds for result in results),
        first_step_seconds=tuple(
            None if each.first_step_at is None else _between(each.started_at, each.first_step_at)
            for each in seen
        ),
    )


def _later(seconds: Sequence[float | None]) -> float | None:
    """The median of all but the first, as far as they are known."""
    known = [value for value in seconds[1:] if value is not None]
    return statistics.median(known) if known else None


def _between(start: float | None, end: float | None) -> float:
    assert start is not None and end is not None  # the run has ended
    return end - start


def _figure(value: float | None) -> str:
    return "unseen" if value is None else f"{value:.2f}"
