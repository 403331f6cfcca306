"""What is said of a long work where there is no terminal."""

from __future__ import annotations

import pytest

from transformer.data import progress
from transformer.data.progress import show_bytes


def test_a_line_now_and_then_goes_to_standard_error(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    clock = [0.0]
    monkeypatch.setattr(progress.time, "monotonic", lambda: clock[0])
    with show_bytes("fetch [red]a.tgz", 7 * 2**20) as show:
        for now, done in ((29.0, 1), (31.0, 2), (45.0, 3), (62.0, 5)):
            clock[0] = now
            show(done * 2**20)
    assert capsys.readouterr() == (
        "",
        "fetch [red]a.tgz: 2.0 MiB of 7.0 MiB\nfetch [red]a.tgz: 5.0 MiB of 7.0 MiB\n",
    )
