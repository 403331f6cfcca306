"""A table's results as a run of W&B."""

from __future__ import annotations

from pathlib import Path

from ablations.files import FIGURES
from ablations.report.numbers import compute_numbers
from ablations.report.report import lines_of_runs


def track_table_run(root: Path, *, offline: bool = False) -> None:
    """Log the finished runs of the table in ``root``, as in its ``results.csv``, as a W&B table.

    Args:
        root: the table's directory
        offline: whatever the environment says

    Raises:
        InputError: if a file there cannot be read.
    """
    from experiments.tracking import track_table

    table = compute_numbers(root)
    plan = table.plan
    heads, *lines = lines_of_runs(table)
    track_table(
        root,
        f"{plan.table}-{plan.scale}-table",
        [*map(str, heads)],
        lines,
        figures={path.stem: path for path in sorted((root / FIGURES).glob("*.png"))},
        config={"table": plan.table, "scale": plan.scale, "corpus": plan.base.data.corpus.name},
        group=f"{plan.table}-{plan.scale}",
        tags=(plan.table, plan.scale, "table"),
        offline=offline,
    )
