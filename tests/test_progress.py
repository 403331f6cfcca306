"""Progress without a terminal."""

from __future__ import annotations

import pytest

from transformer import progress
from transformer.progress import show_progress


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


HALF_MINUTES = [(29, 10**6), (31, 5 * 10**6)]


@pytest.mark.parametrize(
    ("total", "done", "in_bytes", "reports", "lines"),
    [
        # 10 a second from 100 on, which an earlier start did
        (500, 100, False, [(10, 200), (29, 390), (31, 410)], ["82%, 9 s left"]),
        (500, 0, False, [(10, 100), (31, 310), (40, 400), (62, 490)],
         ["62%, 19 s left", "98%, 3 s left"]),
        (None, 0, True, HALF_MINUTES, ["5.0 MB"]),
        (7 * 10**6, 0, True, HALF_MINUTES, ["5.0 MB of 7.0 MB, 1 s left"]),
    ],
)  # fmt: skip
def test_a_line_every_half_minute_with_the_time_left(
    total: float | None,
    done: int,
    in_bytes: bool,
    reports: list[tuple[float, float]],
    lines: list[str],
    clock: Clock,
    capsys: pytest.CaptureFixture[str],
) -> None:
    with show_progress("x [b]", total, done, in_bytes=in_bytes) as update:
        for clock.now, amount in ((0, done), *reports):
            update(amount)
    assert capsys.readouterr() == ("", "".join(f"x [b]: {line}\n" for line in lines))


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
