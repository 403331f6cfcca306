"""What tests of several folders here share."""

from __future__ import annotations

import pytest


@pytest.fixture(autouse=True)
def _fp32(monkeypatch: pytest.MonkeyPatch) -> None:
    """To ask for this machine's precision takes a process that imports torch."""
    monkeypatch.setattr("ablations.tables.plan.faster_precision", lambda _: "fp32")


@pytest.fixture
def undrawn(monkeypatch: pytest.MonkeyPatch) -> None:
    """Reports have empty figures, as drawing takes seconds."""
    monkeypatch.setattr(
        "ablations.report.layout.draw", lambda specs: dict.fromkeys(specs, ("<svg/>", b""))
    )
