"""What a worker says to the storage and when, with a storage that is away at times."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, cast

import pytest
from sqlalchemy.exc import OperationalError

from ablations.runner.lease import Lease
from ablations.runner.link import Link
from ablations.runner.machine import Slot
from ablations.runner.queue import Claim, Queue
from ablations.runner.storage import Patience
from ablations.tables.plan import Plan
from ablations.tables.table import Cell
from tests.ablations.samples import small_plan

GRACE = 60


class Storage:
    """A queue and a lease in one, which answer or do not."""

    def __init__(self) -> None:
        self.is_away = False
        self.judged: list[bool] = []
        self.closed: list[tuple[str, str, str]] = []
        self.beats: list[Mapping[str, Any]] = []
        self.waiting: list[Claim] = []

    def _answer(self) -> None:
        if self.is_away:
            raise OperationalError("SELECT 1", {}, Exception("server closed the connection"))

    def hold(self) -> bool:
        self._answer()
        return True

    def reconcile(self, *, judge: bool, still_leads: Callable[[], bool]) -> None:
        self._answer()
        assert still_leads()
        self.judged.append(judge)

    def take(self, wanted: Callable[[str], bool]) -> Claim | None:
        self._answer()
        return self.waiting.pop(0) if self.waiting and wanted(self.waiting[0].name) else None

    def close(self, claim: Claim, kind: str, reason: str, facts: object) -> None:
        del facts
        self._answer()
        self.closed.append((claim.name, kind, reason))

    def beat(self, claim: Claim, facts: Mapping[str, Any]) -> bool:
        self._answer()
        self.beats.append(facts)
        return claim.name != "lost"

    def should_prune(self, claim: Claim, reports: Mapping[int, float]) -> bool:
        del claim
        return any(value > 100 for value in reports.values())


class Talk:
    """A link whose turns are taken by the test, at times of its own."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.now = 1000.0
        monkeypatch.setattr("ablations.runner.link.time.monotonic", lambda: self.now)
        self.storage = Storage()
        queue, lease = cast(Queue, self.storage), cast(Lease, self.storage)
        self.link = Link(queue, lease, Patience(10, GRACE), lambda name: True)

    def turn(self, seconds: float = 1.0) -> None:
        self.now += seconds
        self.link._attempt(self.link._turn)

    def take(self, name: str) -> Claim:
        self.storage.waiting.append(claim(name))
        self.link.offer(Slot())
        self.turn()
        _, taken = self.link.taken.get_nowait()
        return taken


@pytest.fixture
def talk(monkeypatch: pytest.MonkeyPatch) -> Talk:
    return Talk(monkeypatch)


def claim(name: str) -> Claim:
    plan: Plan = small_plan()
    return Claim(name, plan.experiment(Cell("base", 1)), cast(Any, None))


def test_nobody_is_judged_before_the_grace_is_over(talk: Talk) -> None:
    for _ in range(GRACE + 20):
        talk.turn()
    assert not any(talk.storage.judged[: GRACE // 2 - 1])
    assert all(talk.storage.judged[GRACE // 2 + 2 :])


@pytest.mark.parametrize("seconds", [GRACE / 2 + 2, 600])
def test_after_an_outage_nobody_is_judged_for_the_grace(talk: Talk, seconds: float) -> None:
    for _ in range(GRACE + 20):
        talk.turn()
    talk.storage.is_away = True
    talk.turn(1)
    assert talk.link.trouble == "server closed the connection"
    talk.turn(seconds)
    talk.storage.is_away = False
    judged = len(talk.storage.judged)
    talk.turn(3)
    assert talk.link.trouble == ""
    for _ in range(GRACE - 5):
        talk.turn()
    assert len(talk.storage.judged) > judged
    assert not any(talk.storage.judged[judged:])
    for _ in range(10):
        talk.turn()
    assert talk.storage.judged[-1]


def test_a_pause_of_its_own_is_an_outage_too(talk: Talk) -> None:
    for _ in range(GRACE + 20):
        talk.turn()
    talk.turn(GRACE)
    assert not talk.storage.judged[-1]


def test_what_ended_in_an_outage_is_told_after_it(talk: Talk) -> None:
    taken = talk.take("base/seed-1")
    talk.storage.is_away = True
    talk.link.end(taken, "done", "", {})
    talk.turn()
    assert not talk.storage.closed
    talk.storage.is_away = False
    talk.turn()
    assert talk.storage.closed == [("base/seed-1", "done", "")]


def test_a_run_is_told_of_at_once_and_then_at_each_heartbeat(talk: Talk) -> None:
    taken = talk.take("base/seed-1")
    talk.turn(5)
    assert not talk.storage.beats
    talk.link.follow(taken, {"attempt": 2}, {})
    for _ in range(12):
        talk.turn()
    assert talk.storage.beats == [{"attempt": 2}] * 2


def test_what_others_have_taken_over_is_told_once(talk: Talk) -> None:
    talk.link.follow(talk.take("lost"), {"attempt": 1}, {})
    talk.turn()
    assert talk.link.lost.get_nowait().name == "lost"
    talk.turn(20)
    assert talk.link.lost.empty()


def test_a_pruner_is_asked_between_heartbeats(talk: Talk) -> None:
    taken = talk.take("trial-0001")
    talk.link.follow(taken, {}, {10: 5.0})
    talk.turn()
    talk.link.follow(taken, {}, {10: 5.0, 20: 500.0})
    talk.turn()
    assert talk.link.pruned.get_nowait() is taken


def test_a_fault_of_ours_is_raised_where_the_worker_is(talk: Talk) -> None:
    def broken() -> bool:
        raise ZeroDivisionError

    talk.storage.hold = broken
    with talk.link:
        talk.link._thread.join(5)
    with pytest.raises(ZeroDivisionError):
        talk.link.check()
