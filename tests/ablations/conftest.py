"""What tests of several folders here share."""

from __future__ import annotations

import functools

import pytest

from experiments.run.devices import native_precision
from tests.ablations.postgresql import postgresql

__all__ = ["postgresql"]

_ask_once = functools.cache(native_precision)


@pytest.fixture(autouse=True)
def _precision_is_asked_for_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each answer takes a process that imports torch."""
    monkeypatch.setattr("ablations.tables.plan.native_precision", _ask_once)
