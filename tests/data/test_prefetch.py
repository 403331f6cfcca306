"""Batches made ahead."""

from __future__ import annotations

import threading
from collections.abc import Iterator

import pytest

from transformer.data.prefetch import made_ahead


def test_all_come_in_their_order() -> None:
    assert list(made_ahead(lambda x: x * x, range(23))) == [x * x for x in range(23)]
    assert list(made_ahead(abs, [])) == []


def test_some_are_made_while_the_caller_does_something_else() -> None:
    third = threading.Event()
    made: list[int] = []

    def make(item: int) -> int:
        made.append(item)
        if item == 3:
            third.set()
        return item

    items = made_ahead(make, range(101), ahead=3)
    assert next(items) == 0
    assert third.wait(5)
    items.close()
    assert max(made) <= 4, "and not all at once"


def test_a_fault_comes_where_its_item_is_due() -> None:
    items = made_ahead(lambda x: 7 // (2 - x), range(5))
    assert [next(items), next(items)] == [3, 7]
    with pytest.raises(ZeroDivisionError):
        next(items)


def test_no_thread_is_left_when_the_caller_stops() -> None:
    def endless() -> Iterator[int]:
        while True:
            yield 1

    before = threading.active_count()
    items = made_ahead(abs, endless())
    next(items)
    assert threading.active_count() == before + 1
    items.close()
    assert threading.active_count() == before
