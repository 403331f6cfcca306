"""Nothing of a storm is left behind."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.ablations.storm.processes import keeper


@pytest.fixture(scope="session", autouse=True)
def _kept() -> Iterator[None]:
    with keeper():
        yield
