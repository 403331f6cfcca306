"""Numbers and progress as people read them."""

from __future__ import annotations

from types import SimpleNamespace

import pytest

from transformer import formats
from transformer.progress import show_progress


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (formats.duration(59.4), "59 s"),
        (formats.duration(59.6), "1 min 00 s"),
        (formats.duration(3_600), "1 h 00 min"),
        (formats.duration(47.99 * 3_600), "47 h 59 min"),
        (formats.duration(200_000), "2 days 07 h"),
        (formats.duration(None), "\u2013"),
        (formats.number(1234.5, 2), "1.23e+03"),
        (formats.number(float("inf"), 2), "∞"),
        (formats.number(float("nan"), 2), "not a number"),
        (formats.difference(float("-inf"), 2), "\u2212∞"),
        (formats.difference(0.04, 1), "0.0"),
        (formats.difference(-0.04, 1), "0.0"),
        (formats.difference(-0.06, 1), "\u22120.1"),
        (formats.difference(0.06, 1), "+0.1"),
        (formats.millions(562_432), "0.562"),
        (formats.millions(2_927_872), "2.93"),
        (formats.millions(168_000_000), "168.0"),
        (formats.size(4_416_000), "4.4 MB"),
        (formats.size(657_632_379), "658 MB"),
        (formats.size(1.26e9), "1.3 GB"),
        (formats.steps(300_000), "300K"),
        (formats.steps(4_500), "4,500"),
    ],
)
def test_formats(text: str, expected: str) -> None:
    assert text == expected


@pytest.mark.parametrize(
    ("done", "reports", "lines"),
    [
        # 10 a second from 100 on, which an earlier start did
        (100, [(10, 200), (29, 390), (31, 410)], ["82%, 9 s left"]),
        (0, [(10, 100), (31, 310), (40, 400), (62, 490)], ["62%, 19 s left", "98%, 2 s left"]),
    ],
)
def test_a_line_every_half_minute_with_the_time_left(
    done: int,
    reports: list[tuple[float, float]],
    lines: list[str],
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """Without a terminal."""
    clock = SimpleNamespace(now=0.0)
    monkeypatch.setattr("transformer.progress.time.monotonic", lambda: clock.now)
    with show_progress("x [b]", 500, done) as update:
        for clock.now, amount in ((0.0, done), *reports):
            update(amount)
    assert capsys.readouterr() == ("", "".join(f"x [b]: {line}\n" for line in lines))
