"""What a worker exchanges with the storage and when, including while the storage is away."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest
from sqlalchemy.exc import OperationalError

from ablations.runner.active_run import ActiveRun
from ablations.runner.lease import Lease
from ablations.runner.machine import Slot
from ablations.runner.queue import Claim, Queue
from ablations.runner.storage import Heartbeat, open_storage
from ablations.runner.storage_url import storage_url
from ablations.runner.sync import QueueSync
from ablations.tables.table import Cell
from tests.ablations.postgresql import Server
from tests.ablations.samples import small_plan

GRACE = 60


class Storage:
    """A queue and a lease in one, which answer or do not."""

    def __init__(self) -> None:
        self.is_away = False
        self.judged: list[bool] = []
        self.reported: list[tuple[str, str | None]] = []
        self.beats: list[Mapping[str, Any]] = []
        self.waiting: list[Claim] = []

    def hold(self) -> bool:
        if self.is_away:
            raise OperationalError("SELECT 1", {}, Exception("server closed the connection"))
        return True

    release = hold

    def reconcile(self, *, judge: bool, may_continue: Callable[[], bool]) -> bool:
        assert may_continue()
        self.judged.append(judge)
        return True

    def take(self, wanted: Callable[[str], bool]) -> Claim | None:
        self.hold()
        return self.waiting.pop(0) if self.waiting and wanted(self.waiting[0].name) else None

    def complete(self, claim: Claim) -> None:
        self.hold()
        self.reported.append((claim.name, None))

    def fail(self, claim: Claim, reason: str, attributes: object) -> None:
        del attributes
        self.hold()
        self.reported.append((claim.name, reason))

    def beat(self, claim: Claim, attributes: Mapping[str, Any]) -> bool:
        self.hold()
        self.beats.append(attributes)
        return claim.name != "lost"

    def should_prune(self, claim: Claim, reports: Mapping[int, float]) -> bool:
        del claim
        return any(value > 100 for value in reports.values())


class Exchange:
    """A sync whose rounds are taken by the test, by a clock of its own."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.now = 1000.0
        monkeypatch.setattr("ablations.runner.sync.time.monotonic", lambda: self.now)
        self.storage = Storage()
        queue, lease = cast(Queue, self.storage), cast(Lease, self.storage)
        self.sync = QueueSync(queue, lease, Heartbeat(10, GRACE), lambda name: True)
        self.reports: dict[int, float] = {}
        self.orders: list[str] = []

    def round(self, seconds: float = 1.0) -> None:
        self.now += seconds
        for _ in range(10):
            self.sync.step()

    def take(self, name: str) -> Claim:
        experiment = small_plan().experiment(Cell("base", 1))
        self.storage.waiting.append(Claim(name, experiment, cast(Any, None)))
        self.sync.free.append(Slot())
        self.round()
        _, taken = self.sync.claimed.popleft()
        return taken

    def start(self, name: str) -> Claim:
        claim = self.take(name)
        run = SimpleNamespace(
            claim=claim,
            directory=None,
            run_set=SimpleNamespace(reports=lambda _: self.reports),
            attributes=lambda: {"attempt": 2},
            lose=lambda: self.orders.append("lose"),
            prune=lambda: self.orders.append("prune"),
        )
        self.sync.started(cast(ActiveRun, run))
        return claim


@pytest.fixture
def exchange(monkeypatch: pytest.MonkeyPatch) -> Exchange:
    return Exchange(monkeypatch)


def test_nobody_is_judged_before_the_grace_is_over(exchange: Exchange) -> None:
    for _ in range(GRACE + 20):
        exchange.round()
    judged = exchange.storage.judged
    assert not any(judged[: GRACE // 2 - 1])
    assert all(judged[GRACE // 2 + 2 :])


@pytest.mark.parametrize("seconds", [GRACE / 2 + 2, 600])
def test_after_an_outage_nobody_is_judged_for_the_grace(exchange: Exchange, seconds: float) -> None:
    for _ in range(GRACE + 20):
        exchange.round()
    exchange.storage.is_away = True
    exchange.round()
    assert exchange.sync.trouble == "server closed the connection"
    exchange.round(seconds)
    exchange.storage.is_away = False
    judged = len(exchange.storage.judged)
    exchange.round(3)
    assert exchange.sync.trouble == ""
    for _ in range(GRACE - 5):
        exchange.round()
    assert len(exchange.storage.judged) > judged
    assert not any(exchange.storage.judged[judged:])
    for _ in range(10):
        exchange.round()
    assert exchange.storage.judged[-1]


def test_a_pause_of_its_own_is_treated_as_an_outage(exchange: Exchange) -> None:
    for _ in range(GRACE + 20):
        exchange.round()
    exchange.round(GRACE)
    assert not exchange.storage.judged[-1]


def test_an_end_during_an_outage_is_reported_after_it(exchange: Exchange) -> None:
    first, second = exchange.take("base/seed-1"), exchange.take("base/seed-2")
    exchange.storage.is_away = True
    exchange.sync.ended(first, None)
    exchange.sync.ended(second, "it broke")
    exchange.round()
    exchange.sync.close()
    assert not exchange.storage.reported
    exchange.storage.is_away = False
    exchange.round()
    assert exchange.storage.reported == [("base/seed-1", None), ("base/seed-2", "it broke")]
    assert not exchange.sync.held


def test_a_run_is_reported_at_once_and_then_at_each_heartbeat(exchange: Exchange) -> None:
    exchange.start("base/seed-1")
    for _ in range(13):
        exchange.round()
    assert exchange.storage.beats == [{"attempt": 2}] * 2


def test_a_run_that_others_have_taken_over_is_stopped_once(exchange: Exchange) -> None:
    exchange.start("lost")
    for _ in range(25):
        exchange.round()
    assert exchange.orders == ["lose"]
    assert not exchange.sync.held


def test_pruning_does_not_wait_for_a_heartbeat(exchange: Exchange) -> None:
    exchange.start("trial-0001")
    exchange.reports = {10: 5.0}
    exchange.round()
    assert not exchange.orders
    exchange.reports = {10: 5.0, 20: 500.0}
    exchange.round()
    assert exchange.orders == ["prune"]


def test_an_error_in_our_own_code_is_raised(exchange: Exchange) -> None:
    def broken() -> bool:
        raise ZeroDivisionError

    exchange.storage.hold = broken
    with pytest.raises(ZeroDivisionError):
        exchange.round()


@pytest.mark.parametrize("how", ["stop", "pause"])
def test_an_outage_blocks_for_a_moment_only(postgresql: Server, how: str) -> None:
    url = storage_url(postgresql.create(f"bounded-{how}"), Path())
    with open_storage(url, Heartbeat()) as storage:
        lease = Lease(storage.engine, "study", "one", 60)
        storage.wait_seconds = 2.0
        assert lease.hold()
        getattr(postgresql, how)()
        try:
            for _ in range(2):  # by the open connection, and by a new one
                began = time.monotonic()
                with pytest.raises(OperationalError):
                    lease.hold()
                assert time.monotonic() - began < 3.5
                time.sleep(0.2)
        finally:
            {"stop": postgresql.start, "pause": postgresql.resume}[how]()
        assert lease.hold()
