"""A table's results as a run of W&B."""

from __future__ import annotations

from pathlib import Path

from ablations.files import FIGURES
from ablations.report.numbers import RowNumbers, compute_numbers
from ablations.tables.plan import Plan


def track_table_run(root: Path, *, offline: bool = False) -> None:
    """Log the results of the table in ``root`` as a W&B table, in a run of its own.

    Args:
        root: the table's directory
        offline: whatever the environment says

    Raises:
        InputError: if a file there cannot be read.
    """
    from experiments.tracking import track_table

    table = compute_numbers(root)
    plan = table.plan
    rows = [_line(plan, row) for row in table.rows]
    names = {"table": plan.table, "scale": plan.scale}
    track_table(
        root,
        f"{plan.table}-{plan.scale}-table",
        list(rows[0]) if rows else ["row"],
        [list(row.values()) for row in rows],
        figures={path.stem: path for path in sorted((root / FIGURES).glob("*.png"))},
        config={**names, "corpus": plan.base.data.corpus.name},
        group=f"{plan.table}-{plan.scale}",
        tags=(*names.values(), "table"),
        offline=offline,
    )


def _line(plan: Plan, row: RowNumbers) -> dict[str, str | float | None]:
    """A row by column: numbers, or text, or None if there is no value yet."""
    changes = " ".join(f"{name}={row.settings[name]}" for name in sorted(row.changed))
    line: dict[str, str | float | None] = {"row": row.name, "changes": changes}
    for name, score in row.scores.items():
        line[name] = score.ours and score.ours.mean
        line[f"{name}_deviation"] = score.ours and score.ours.deviation
        line[f"{name}_difference"] = score.difference and score.difference.mean
        if plan.is_compared:
            line[f"paper_{name}"] = score.paper
    line["seeds"] = len(row.results)
    line["parameters"] = row.results[0].parameters if row.results else None
    return line | {name: row.settings[name] for name in plan.shown}
