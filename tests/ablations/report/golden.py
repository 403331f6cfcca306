"""The expected report, made anew by ``python -m tests.ablations.report.golden``."""

from __future__ import annotations

import tempfile
from pathlib import Path

from ablations.report.report import write_report
from tests.ablations.samples import fill_table3

GOLDEN = Path(__file__).with_name("golden_report.md")


def main() -> None:
    """Write the report of the sample directory beside this file."""
    with tempfile.TemporaryDirectory() as folder:
        fill_table3(Path(folder))
        write_report(Path(folder))
        GOLDEN.write_text((Path(folder) / "report.md").read_text(encoding="utf-8"), "utf-8")


if __name__ == "__main__":
    main()
