"""The expected reports, made anew by ``python -m tests.ablations.report.golden``."""

from __future__ import annotations

import os
import tempfile
from pathlib import Path
from unittest import mock

from ablations.report.report import write_report
from tests.ablations.report.samples import fill_own, fill_signs
from tests.ablations.samples import fill_table3

FILL = {"table3": fill_table3, "signs": fill_signs, "own": fill_own}
WIDTHS = {"table3": 80, "signs": 120, "own": 300}
FILES = ("report.md", "table.tex", "results.csv", "terminal.txt")
FOLDER = Path(__file__).with_name("golden")


def fill_and_report(name: str, root: Path) -> None:
    """Fill a directory and write its report, and what a terminal shows of it."""
    FILL[name](root)
    with mock.patch.dict(os.environ, {"COLUMNS": str(WIDTHS[name])}):
        (root / "terminal.txt").write_text(write_report(root), encoding="utf-8")


def main() -> None:
    """Write the expected files."""
    for name in FILL:
        with tempfile.TemporaryDirectory() as folder:
            fill_and_report(name, Path(folder))
            (FOLDER / name).mkdir(parents=True, exist_ok=True)
            for file in FILES:
                (FOLDER / name / file).write_bytes((Path(folder) / file).read_bytes())


if __name__ == "__main__":
    main()
