"""Reports that several modules read."""

from __future__ import annotations

import functools
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.ablations.report.samples import fill_and_report


@pytest.fixture(scope="session")
def reported(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Path]:
    """The directory of a table of ``samples.GOLDEN``, with its report; written once."""

    @functools.cache
    def report(name: str) -> Path:
        root = tmp_path_factory.mktemp(name)
        fill_and_report(name, root)
        return root

    return report
