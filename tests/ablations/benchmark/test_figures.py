"""Times of a fleet and of the same runs without it, and what is made of them."""

from __future__ import annotations

import dataclasses

import pytest

from ablations.benchmark.figures import Times, lines, overhead
from ablations.benchmark.timeline import Marks
from ablations.tables.table import Cell
from tests.ablations.samples import result

RESULTS = [result(Cell("base", seed)) for seed in (1, 2, 3)]
#             started, first step, written, published
FLEET = {
    "base/seed-1": Marks(100.0, 107.0, 128.0, 129.0),
    "base/seed-2": Marks(131.0, 132.0, 157.0, 160.0),
    "base/seed-3": Marks(165.0, 168.0, 199.0, 201.0),
}
REFERENCE = {
    "base/seed-1": Marks(50.0, 53.0, None, 80.0),
    "base/seed-2": Marks(80.0, 80.5, None, 110.0),
    "base/seed-3": Marks(110.0, None, None, 147.0),
}


def test_each_figure_is_that_of_its_times() -> None:
    found = overhead(FLEET, RESULTS, REFERENCE, RESULTS)
    assert found.fleet == Times(
        seconds=101.0,
        run_seconds=(29.0, 29.0, 36.0),
        train_seconds=(61.5, 61.5, 61.5),
        first_step_seconds=(7.0, 1.0, 3.0),
    )
    assert found.reference.seconds == 97.0
    assert found.reference.first_step_seconds == (3.0, 0.5, None)
    assert found.ratio == pytest.approx(101 / 97)
    assert (found.closing_seconds, found.turn_seconds) == (2.0, 3.5)
    assert found.same_results


def test_they_are_told_in_words() -> None:
    told = [line.split() for line in lines(overhead(FLEET, RESULTS, REFERENCE, RESULTS))]
    assert ["seconds", "in", "all", "101.00", "97.00"] in told
    assert ["seconds", "to", "the", "first", "step,", "first", "run", "7.00", "3.00"] in told
    assert ["seconds", "to", "the", "first", "step,", "later", "runs", "2.00", "0.50"] in told
    assert " ".join(told[-1]).startswith("the fleet takes +4.1% of the time")


def test_other_results_are_said_to_be_others() -> None:
    others = [*RESULTS[:2], dataclasses.replace(RESULTS[2], perplexity=3.0000001)]
    found = overhead(FLEET, RESULTS, REFERENCE, others)
    assert not found.same_results
    assert list(lines(found))[-1] == "the results are not the same to the last bit"


def test_no_first_step_that_was_seen_is_told_as_unseen() -> None:
    unseen = {
        name: dataclasses.replace(marks, first_step_at=None) for name, marks in REFERENCE.items()
    }
    told = "\n".join(lines(overhead(FLEET, RESULTS, unseen, RESULTS)))
    assert told.count("unseen") == 2
