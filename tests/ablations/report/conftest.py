"""The reports that the golden files show."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.ablations.report.golden import FILL, fill_and_report


@pytest.fixture(scope="session")
def reports(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """Directories of tables by name, reported."""
    roots = {name: tmp_path_factory.mktemp(name) for name in FILL}
    for name, root in roots.items():
        fill_and_report(name, root)
    return roots
