"""``map`` on threads: ordered, each with a share of torch's threads, which are restored."""

from __future__ import annotations

import threading
from collections.abc import Callable

import pytest
import torch

from transformer.kernels.threads import map_on_threads


@pytest.fixture(autouse=True)
def _four_threads(set_threads: Callable[[int], None]) -> None:
    set_threads(4)


@pytest.mark.parametrize(("threads", "share"), [(2, 2), (4, 1), (3, 1), (8, 1)])
def test_each_thread_has_its_share(threads: int, share: int) -> None:
    shares = list(map_on_threads(lambda _: torch.get_num_threads(), range(11), threads))
    assert shares == [share] * 11
    assert torch.get_num_threads() == 4


def test_results_of_several_threads_come_in_order() -> None:
    both = threading.Barrier(2, timeout=30)

    def work(item: int) -> tuple[int, str]:
        both.wait()  # continues only if two threads are working
        return item, threading.current_thread().name

    outcomes = list(map_on_threads(work, range(6), 2))
    assert [item for item, _ in outcomes] == list(range(6))
    assert threading.current_thread().name not in {name for _, name in outcomes}


def test_an_error_is_raised_and_the_setting_restored() -> None:
    with pytest.raises(ZeroDivisionError):
        list(map_on_threads(lambda x: 1 // x, [1, 0], 2))
    assert torch.get_num_threads() == 4
