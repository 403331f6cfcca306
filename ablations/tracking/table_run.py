"""A table's results as a run of W&B."""

from __future__ import annotations

from pathlib import Path
from statistics import fmean

from ablations.files import FIGURES
from ablations.report.numbers import RowNumbers, TableNumbers, compute_numbers

_MILLION = 1e6


def track_table_run(root: Path, *, offline: bool = False) -> None:
    """Log the results of the table in ``root`` as a W&B table, in a run of its own.

    Args:
        root: the table's directory
        offline: whatever the environment says

    Raises:
        InputError: if a file there cannot be read.
    """
    from experiments.wandb_runs import track_table

    table = compute_numbers(root)
    plan = table.plan
    rows = [_line(table, row) for row in table.rows]
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


def _line(table: TableNumbers, row: RowNumbers) -> dict[str, str | float | None]:
    """A row by column: numbers, or text, or None if there is no value yet."""
    done = row.results
    line: dict[str, str | float | None] = {"row": row.name}
    line["changes"] = " ".join(f"{name}={row.settings[name]}" for name in sorted(row.changed))
    for name, score in row.scores.items():
        difference, in_paper = score.difference, score.paper_difference
        line |= {
            name: score.ours and score.ours.mean,
            f"{name}_deviation": score.ours and score.ours.deviation,
            f"{name}_difference": difference and difference.mean,
            f"paper_{name}": score.paper,
            f"paper_{name}_difference": None if in_paper is None else round(in_paper, 2),
        }
    line |= {
        "seeds": len(done),
        "seeds_planned": len(row.seeds),
        "parameters_millions": done[0].parameters / _MILLION if done else None,
        "paper_parameters_millions": row.reported.parameters_millions,
        "tokens_per_second": fmean(x.tokens_per_second for x in done) if done else None,
        "train_seconds": fmean(x.train_seconds for x in done) if done else None,
        **{name: row.settings[name] for name in table.plan.shown},
    }
    compared = table.plan.is_compared
    return {name: value for name, value in line.items() if compared or name[:6] != "paper_"}
