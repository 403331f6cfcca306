"""The lease: one leader at a time, and another when the first is silent."""

from __future__ import annotations

import subprocess
import sys
import threading
import time
from collections.abc import Callable

import pytest
from sqlalchemy.engine import URL

from ablations.runner.identity import name_of
from ablations.runner.lease import Lease
from tests.ablations.runner.conftest import OpenStorage

GRACE = 0.3


Make = Callable[..., Lease]


@pytest.fixture
def lease(url: URL, open_: OpenStorage) -> Make:
    def make(worker: str, study: str = "study") -> Lease:
        return Lease(open_(url).engine, study, worker, GRACE)

    return make


def test_the_holder_keeps_the_lease_until_it_is_silent_for_the_grace(lease: Make) -> None:
    first, second = lease("one"), lease("two")
    assert first.hold() and first.hold()
    assert not second.hold()
    time.sleep(GRACE * 0.6)
    assert first.hold()
    time.sleep(GRACE * 0.6)
    assert not second.hold()  # it has just seen that the first lives
    time.sleep(GRACE * 1.2)
    assert second.hold()
    assert not first.hold()  # back from its pause, it finds its place taken


def test_a_released_lease_is_free_at_once(lease: Make) -> None:
    first, second = lease("one"), lease("two")
    assert first.hold() and not second.hold()
    second.release()  # not its own
    assert first.hold()
    first.release()
    assert second.hold() and not first.hold()


def test_the_lease_of_a_dead_local_process_is_free_at_once(lease: Make) -> None:
    process = subprocess.Popen([sys.executable, "-S", "-c", "input()"], stdin=subprocess.PIPE)
    first, second = lease(name_of(process.pid)), lease("two")
    assert first.hold() and not second.hold()
    process.communicate()
    assert second.hold()


def test_each_study_has_its_own_lease(lease: Make) -> None:
    assert lease("one").hold()
    assert lease("two", "another").hold()


@pytest.mark.parametrize("held_before", [False, True])
def test_only_one_of_many_competitors_gets_the_lease(lease: Make, held_before: bool) -> None:
    if held_before:
        assert lease("zero").hold()
    leases = [lease(f"worker {index}") for index in range(6)]
    if held_before:
        assert not any(each.hold() for each in leases)
        time.sleep(GRACE * 1.5)
    start, held = threading.Barrier(6), list[bool]()

    def compete(each: Lease) -> None:
        start.wait()
        held.append(each.hold())

    threads = [threading.Thread(target=compete, args=(each,)) for each in leases]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sum(held) == 1


def test_a_deleted_lease_is_free(lease: Make) -> None:
    first, second = lease("one"), lease("two")
    assert first.hold() and not second.hold()
    second.delete()
    assert second.hold() and not first.hold()
