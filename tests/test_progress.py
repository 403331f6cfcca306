"""Progress without a terminal."""

from __future__ import annotations

from collections.abc import Iterable

import pytest

from transformer import progress
from transformer.progress import show_activity, show_progress


class Clock:
    """Stands in for ``time`` and is set by hand."""

    now = 0.0

    def monotonic(self) -> float:
        return self.now


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    clock = Clock()
    monkeypatch.setattr(progress, "time", clock)
    return clock


Reports = Iterable[tuple[float, float]]


@pytest.mark.parametrize(
    ("total", "done", "reports", "lines"),
    [
        # 10 a second from 100 on, which an earlier start did
        (500, 100, [(0, 100), (10, 200), (29, 390), (31, 410)], ["x [b]: 82%, 9 s left"]),
        (500, 0, [(10, 100), (31, 310), (40, 400), (62, 490)],
         ["x [b]: 62%, 19 s left", "x [b]: 98%, 3 s left"]),
    ],
)  # fmt: skip
def test_a_line_every_half_minute_with_the_time_left(
    total: float,
    done: int,
    reports: Reports,
    lines: list[str],
    clock: Clock,
    capsys: pytest.CaptureFixture[str],
) -> None:
    with show_progress("x [b]", total, done) as update:
        for clock.now, amount in reports:
            update(amount)
    assert capsys.readouterr() == ("", "".join(f"{line}\n" for line in lines))


def test_bytes_of_a_known_and_an_unknown_total(
    clock: Clock, capsys: pytest.CaptureFixture[str]
) -> None:
    for total in (None, 7 * 10**6):
        clock.now = 0.0
        with show_progress("fetch a.tgz", total, in_bytes=True) as update:
            for clock.now, amount in ((29.0, 1), (31.0, 5)):
                update(amount * 10**6)
    assert capsys.readouterr().err == (
        "fetch a.tgz: 5.0 MB\nfetch a.tgz: 5.0 MB of 7.0 MB, 1 s left\n"
    )


def test_an_activity_is_named(capsys: pytest.CaptureFixture[str]) -> None:
    with show_activity("learning"):
        pass
    assert capsys.readouterr().err == "learning\n"


def test_parts_of_what_is_shown_are_not_shown(
    clock: Clock, capsys: pytest.CaptureFixture[str]
) -> None:
    """Such as the downloads of a corpus of many files, whose number tells how long it takes."""
    with show_progress("files", 4) as update:
        for number in (1, 2):
            with show_progress("fetch a", 100, in_bytes=True) as update_part:
                clock.now += 31.0
                update_part(100)
            update(number)
    with show_progress("next", 2) as update:
        clock.now += 31.0
        update(1)
    lines = capsys.readouterr().err.splitlines()
    assert [line.partition(":")[0] for line in lines] == ["files", "files", "next"]
