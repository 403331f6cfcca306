"""A report that the tests of this folder look at."""

from __future__ import annotations

from pathlib import Path

import pytest

from ablations.report.report import write_report
from tests.ablations.samples import fill_table3


@pytest.fixture(scope="session")
def table3(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A directory of Table 3 with two seeds of most rows, reported."""
    root = tmp_path_factory.mktemp("table3")
    fill_table3(root)
    write_report(root)
    return root
