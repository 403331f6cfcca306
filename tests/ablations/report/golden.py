"""The expected reports, made anew by ``python -m tests.ablations.report.golden``."""

from __future__ import annotations

import tempfile
from pathlib import Path

from ablations.report.report import write_report
from tests.ablations.samples import fill_table3

GOLDEN = {
    name: Path(__file__).with_name(f"golden_{name}")
    for name in ("report.md", "table.tex", "results.csv")
}


def main() -> None:
    """Write the reports of the sample directory into this folder."""
    with tempfile.TemporaryDirectory() as folder:
        fill_table3(Path(folder))
        write_report(Path(folder))
        for name, path in GOLDEN.items():
            path.write_text((Path(folder) / name).read_text(encoding="utf-8"), "utf-8")


if __name__ == "__main__":
    main()
