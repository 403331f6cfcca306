"""What is shown of long work where there is no terminal."""

from __future__ import annotations

import pytest

from transformer import progress
from transformer.progress import show_activity, show_bytes, show_progress


def test_a_line_now_and_then_with_the_time_left(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    times = iter([100.0, 110.0, 140.0, 150.0, 170.0])
    monkeypatch.setattr(progress.time, "monotonic", lambda: next(times))
    with show_progress("reading", 500, done=100) as update:
        for done in (120, 200, 250, 300):
            update(done)
    lines = capsys.readouterr().err.splitlines()
    # 100 in 40 s, so 300 more take 120 s; then 200 in 70 s
    assert lines == ["reading: 40%, 2 min 00 s left", "reading: 60%, 1 min 10 s left"]


def test_of_bytes_whose_number_is_not_known_those_that_came_are_told(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    times = iter([0.0, 29.0, 31.0, 0.0, 31.0])
    monkeypatch.setattr(progress.time, "monotonic", lambda: next(times))
    with show_bytes("fetch [red]a.tgz", None) as update:
        for done in (1, 2):
            update(done * 10**6)
    with show_bytes("fetch b.tgz", 7 * 10**6) as update:
        update(5 * 10**6)
    assert capsys.readouterr() == (
        "",
        "fetch [red]a.tgz: 2.0 MB\nfetch b.tgz: 5.0 MB of 7.0 MB, 12 s left\n",
    )


def test_an_activity_is_named(capsys: pytest.CaptureFixture[str]) -> None:
    with show_activity("learning"):
        pass
    assert capsys.readouterr().err == "learning\n"
