"""What tests of several folders here share."""

from __future__ import annotations

import functools

import pytest

from experiments.devices import native_precision

_ask_once = functools.cache(native_precision)


@pytest.fixture(autouse=True)
def _one_question(monkeypatch: pytest.MonkeyPatch) -> None:
    """This machine's precision takes a process that imports torch."""
    monkeypatch.setattr("ablations.tables.plan.native_precision", _ask_once)


@pytest.fixture
def undrawn(monkeypatch: pytest.MonkeyPatch) -> None:
    """Reports have empty figures, as drawing takes seconds."""
    monkeypatch.setattr(
        "ablations.report.layout.draw", lambda specs: dict.fromkeys(specs, ("<svg/>", b""))
    )
