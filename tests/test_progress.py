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


@pytest.mark.parametrize(
    ("done", "reports", "lines"),
    [
        # 10 a second from 100 on, which an earlier start did
        (100, [(10, 200), (29, 390), (31, 410)], ["82%, 9 s left"]),
        (0, [(10, 100), (31, 310), (40, 400), (62, 490)], ["62%, 19 s left", "98%, 3 s left"]),
    ],
)
def test_a_line_every_half_minute_with_the_time_left(
    done: int,
    reports: list[tuple[float, float]],
    lines: list[str],
    clock: Clock,
    capsys: pytest.CaptureFixture[str],
) -> None:
    with show_progress("x [b]", 500, done) as update:
        for clock.now, amount in ((0, done), *reports):
            update(amount)
    assert capsys.readouterr() == ("", "".join(f"x [b]: {line}\n" for line in lines))
