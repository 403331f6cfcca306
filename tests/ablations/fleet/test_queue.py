"""The queue: whatever happened to the study, what is queued is what has no result."""

from __future__ import annotations

import sqlite3
from collections import Counter
from pathlib import Path

import pytest

from ablations.fleet.queue import STUDY_FILE, Queue
from ablations.table import Cell
from tests.ablations.samples import empty_study, result
from transformer.errors import InputError

CELLS = [Cell("big", 1), Cell("base", 1), Cell("base", 2)]


def open_queue(directory: Path) -> Queue:
    if not (directory / STUDY_FILE).exists():
        (directory / STUDY_FILE).write_bytes(empty_study())
    return Queue(f"sqlite:///{directory / STUDY_FILE}", "pair-tiny")


def drain(queue: Queue) -> list[Cell]:
    taken: list[Cell] = []
    while (cell := queue.take()) is not None:
        taken.append(cell)
    return taken


def states(directory: Path) -> Counter[str]:
    with sqlite3.connect(directory / STUDY_FILE) as connection:
        return Counter(state for (state,) in connection.execute("SELECT state FROM trials"))


def test_cells_are_handed_out_once_in_the_order_given(tmp_path: Path) -> None:
    queue = open_queue(tmp_path)
    queue.reconcile(CELLS, {}, ())
    queue.reconcile(CELLS, {}, ())
    assert drain(queue) == CELLS
    queue.reconcile([], {}, CELLS)
    assert drain(queue) == []


def test_results_on_disk_are_taken_over_without_a_study(tmp_path: Path) -> None:
    queue = open_queue(tmp_path)
    queue.reconcile(CELLS, {CELLS[0]: result(CELLS[0])}, ())
    assert drain(queue) == CELLS[1:]
    assert states(tmp_path) == {"COMPLETE": 1, "RUNNING": 2}


def test_trials_that_a_dead_coordinator_left_running_are_queued_again(tmp_path: Path) -> None:
    dead = open_queue(tmp_path)
    dead.reconcile(CELLS, {}, ())
    dead.take()
    dead.take()
    queue = open_queue(tmp_path)
    done = {CELLS[1]: result(CELLS[1])}  # its process outlived the coordinator
    queue.reconcile([cell for cell in CELLS if cell not in done], done, ())
    assert drain(queue) == [CELLS[0], CELLS[2]]
    assert states(tmp_path) == {"FAIL": 2, "COMPLETE": 1, "RUNNING": 2}


def test_a_failed_cell_is_queued_by_a_later_call_only(tmp_path: Path) -> None:
    queue = open_queue(tmp_path)
    queue.reconcile(CELLS, {}, ())
    assert queue.take() == CELLS[0]
    queue.fail(CELLS[0], "exit code 1")
    queue.reconcile(CELLS[1:], {}, ())
    assert drain(queue) == CELLS[1:]
    later = open_queue(tmp_path)
    later.reconcile(CELLS, {}, ())
    assert drain(later) == CELLS


def test_a_finished_cell_keeps_its_figures(tmp_path: Path) -> None:
    queue = open_queue(tmp_path)
    queue.reconcile(CELLS[:1], {}, ())
    queue.take()
    queue.finish(CELLS[0], result(CELLS[0], perplexity=4.5, bleu=26.25))
    with sqlite3.connect(tmp_path / STUDY_FILE) as connection:
        values = connection.execute("SELECT value FROM trial_values ORDER BY objective").fetchall()
    assert values == [(4.5,), (26.25,)]


def test_cells_that_wait_but_are_not_asked_for_are_dropped(tmp_path: Path) -> None:
    open_queue(tmp_path).reconcile(CELLS, {}, ())
    queue = open_queue(tmp_path)
    queue.reconcile(CELLS[1:2], {}, ())
    assert drain(queue) == CELLS[1:2]


def test_what_an_earlier_call_left_half_done_comes_first(tmp_path: Path) -> None:
    open_queue(tmp_path).reconcile(CELLS[1:], {}, ())
    queue = open_queue(tmp_path)
    queue.reconcile(CELLS, {}, ())
    assert drain(queue) == CELLS


def test_a_deleted_result_is_queued_again(tmp_path: Path) -> None:
    queue = open_queue(tmp_path)
    queue.reconcile([], {CELLS[0]: result(CELLS[0])}, ())
    queue.reconcile(CELLS[:1], {}, ())
    assert drain(queue) == CELLS[:1]


def test_a_result_that_diverged_does_not_break_the_study(tmp_path: Path) -> None:
    queue = open_queue(tmp_path)
    queue.reconcile(CELLS[:1], {}, ())
    queue.take()
    queue.finish(CELLS[0], result(CELLS[0], perplexity=float("nan")))
    queue.reconcile([], {CELLS[0]: result(CELLS[0], perplexity=float("nan"))}, ())
    assert states(tmp_path) == {"FAIL": 1}


def test_a_broken_study_file_is_bad_input(tmp_path: Path) -> None:
    (tmp_path / STUDY_FILE).write_text("no database " * 100)
    with pytest.raises(InputError, match="it may be deleted, results are kept"):
        open_queue(tmp_path)
